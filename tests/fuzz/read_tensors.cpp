#include "tests/fuzz/read_tensors.h"

#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weft/io/matrices/matrix_format.h"
#include "weft/io/views/read_view.h"

namespace weft::testing {
namespace {

// A header of a few bytes can describe millions of rows without a byte.
constexpr uint64_t kMaxBytes = 1 << 20, kMaxRuns = 1 << 12;

void read_bytes(const io::TensorFile& source, const io::View& view) {
  if (view.max_runs() > kMaxRuns) return;
  std::vector<std::byte> bytes(view.num_bytes());
  io::read_view(source, view, bytes);
}

// The second half of the columns.
void read_half(const io::TensorFile& source, const io::View& view) {
  const int64_t last = view.num_dims() - 1, columns = last < 0 ? 0 : view.size(last);
  if (columns > 1) read_bytes(source, view.narrow(last, columns / 2, columns - columns / 2));
}

// How the file keeps the matrix that this tensor might be of, packed or not.
void find_formats(const io::TensorFile& source, const io::TensorMeta& tensor) {
  const size_t dot = tensor.name.rfind('.');
  if (tensor.shape.size() != 2 || dot == std::string::npos) return;
  for (const int64_t values_per_word : {1, 4, 8}) {
    run_input([&] {
      if (tensor.shape[1] > INT64_MAX / values_per_word) return;
      io::matrix_format(
          source, {tensor.name.substr(0, dot), tensor.shape[0], tensor.shape[1] * values_per_word});
    });
    run_input([&] {
      if (tensor.shape[1] > INT64_MAX / values_per_word) return;
      io::matrix_format(
          source, {tensor.name.substr(0, dot), tensor.shape[1] * values_per_word, tensor.shape[0]});
    });
  }
}

}  // namespace

void read_tensors(const io::TensorFile& source) {
  for (const io::TensorMeta& tensor : source.tensors()) {
    expect(source.find(tensor.name) == &tensor, "a tensor is found by its name");
    find_formats(source, tensor);
    if (tensor.num_bytes > kMaxBytes) continue;
    run_input([&] {
      const io::View view = io::View::of(tensor);
      read_bytes(source, view);
      read_half(source, view);
    });
  }
}

}  // namespace weft::testing
