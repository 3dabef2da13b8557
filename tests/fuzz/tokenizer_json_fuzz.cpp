// A tokenizer.json, which then encodes and decodes a fixed text and the start of the input.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  testing::run_input([&] {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    testing::use_tokenizer(text::Tokenizer::make(text::parse_tokenizer_json(input, "t.json")),
                           input);
  });
  return 0;
}
