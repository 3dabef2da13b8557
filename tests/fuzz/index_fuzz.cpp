// A *.safetensors.index.json beside two small files.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"
#include "weft/io/formats/write_safetensors.h"

namespace {

using weft::io::Dtype;

weft::testing::InputFile make_folder() {
  return weft::testing::InputFile("model.safetensors.index.json");
}

void add_file(const weft::testing::InputFile& folder, const std::string& name,
              const std::string& tensor) {
  static constexpr std::byte kData[8] = {};
  weft::io::write_safetensors(folder.folder() + "/" + name, {{tensor, Dtype::kF16, {2, 2}, kData}},
                              {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const testing::InputFile folder = make_folder();
  static const bool is_ready = [] {
    add_file(folder, "1.safetensors", "a");
    add_file(folder, "2.safetensors", "b");
    return true;
  }();
  testing::run_input([&] {
    testing::expect(is_ready, "the folder has its files");
    const auto source =
        io::TensorFile::open(folder.write({reinterpret_cast<const char*>(data), size}));
    testing::read_tensors(*source);
  });
  return 0;
}
