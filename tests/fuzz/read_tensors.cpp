#include "tests/fuzz/read_tensors.h"

#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weft/core/error.h"

namespace weft::testing {
namespace {

// A header of a few bytes can describe millions of rows without a byte.
constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxRows = 1 << 12;

void read_runs(const io::TensorFile& source, const std::vector<io::ByteRun>& runs) {
  uint64_t size = 0;
  for (const io::ByteRun& run : runs) size += run.num_bytes;
  std::vector<std::byte> bytes(size);
  source.read(runs, bytes);
}

void read_half(const io::TensorFile& source, const io::TensorMeta& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  if (tensor.shape.empty() || rows > kMaxRows || tensor.num_bytes == 0) return;
  const int64_t columns = tensor.shape.back();
  read_runs(source, io::matrix_runs(tensor, {{0, rows}}, {columns / 2, columns - columns / 2}));
}

}  // namespace

void read_tensors(const io::TensorFile& source) {
  for (const io::TensorMeta& tensor : source.tensors()) {
    expect(source.find(tensor.name) == &tensor, "a tensor is found by its name");
    if (tensor.num_bytes > kMaxBytes) continue;
    read_runs(source, {{tensor.file, tensor.offset, tensor.num_bytes}});
    run_input([&] { read_half(source, tensor); });
  }
}

}  // namespace weft::testing
