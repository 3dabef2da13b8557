// A Jinja chat template, run on a conversation.
#include "tests/fuzz/fuzz.h"
#include "weft/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const text::ChatTemplate::Inputs inputs{
      .messages = {{"system", "Be brief."},
                   {"user", "a b\n<|im_end|>"},
                   {"assistant", "<think>\xC3\xA9</think> x"},
                   {"critic", ""}},
      .bos_token = "<s>",
      .eos_token = "</s>"};
  testing::run_input([&] {
    const auto compiled =
        text::ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, "template");
    for (const text::ChatPiece& piece : compiled.render(inputs)) {
      testing::expect(!piece.text.empty(), "pieces are not empty");
    }
  });
  return 0;
}
