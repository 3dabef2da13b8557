// A GGUF file: keys, headers, every tensor's bytes.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const testing::InputFile file("input.gguf");
  testing::run_input([&] {
    const auto source =
        io::TensorFile::open(file.write({reinterpret_cast<const char*>(data), size}));
    testing::read_tensors(*source);
  });
  return 0;
}
