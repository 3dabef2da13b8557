// A tokenizer_config.json beside a small tokenizer.json, and its chat templates.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"
#include "weft/core/json.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer_json/tokenizer_config.h"

namespace {

constexpr char kTokenizer[] =
    R"({"version":"1.0","added_tokens":[{"id":2,"content":"<s>","single_word":false,"lstrip":false,)"
    R"("rstrip":false,"normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":)"
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"post_processor":null,)"
    R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

void use(const weft::text::TokenizerConfig& config, std::string_view input) {
  using weft::text::ChatTemplate;
  weft::testing::run_input([&] {
    weft::testing::use_tokenizer(weft::text::Tokenizer::make(weft::text::parse_tokenizer_json(
                                     kTokenizer, "tokenizer.json", config.changes)),
                                 input);
  });
  for (const auto& [name, source] : config.chat_templates) {
    weft::testing::run_input([&source = source, &config] {
      ChatTemplate::parse(source, "template")
          .render({.messages = {{"user", "a"}, {"assistant", "b"}},
                   .bos_token = config.spelling("bos"),
                   .eos_token = config.spelling("eos")});
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  testing::run_input([&] {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const core::Json json = core::parse_json(input, "tokenizer_config.json");
    const core::Json none;
    use(text::read_tokenizer_config({json, "tokenizer_config.json"}, {none, "none"}), input);
    testing::run_input([&] {
      use(text::read_tokenizer_config({none, "none"}, {json, "special_tokens_map.json"}), input);
    });
  });
  return 0;
}
