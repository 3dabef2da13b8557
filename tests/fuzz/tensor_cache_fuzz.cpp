// A tensor-cache.json beside a file of 16 bytes.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const testing::InputFile folder("tensor-cache.json");
  static const bool is_ready = [] {
    folder.add("0.bin", "0123456789abcdef");
    return true;
  }();
  testing::run_input([&] {
    testing::expect(is_ready, "the folder has its file");
    const auto source =
        io::TensorFile::open(folder.write({reinterpret_cast<const char*>(data), size}));
    testing::read_tensors(*source);
  });
  return 0;
}
