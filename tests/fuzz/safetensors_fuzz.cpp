// A safetensors file: headers, every tensor's bytes, pieces by their names.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/read_tensors.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/views/pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const testing::InputFile file("input.safetensors");
  static const io::FunctionTable functions;
  testing::run_input([&] {
    const auto source =
        io::TensorFile::open(file.write({reinterpret_cast<const char*>(data), size}));
    testing::read_tensors(*source);
    io::ShardPlan::make(*source, io::pieces_info(*source), 2, functions);
  });
  return 0;
}
