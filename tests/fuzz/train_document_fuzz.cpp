// A line of a .jsonl file of training documents, made into tokens; and the same bytes as a text.
#include "tests/fuzz/fuzz.h"
#include "weft/train/data/document_tokens.h"

namespace {

using namespace weft;

text::Tokenizer make_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.tokens = {"<|im_start|>", "<|im_end|>", "a",        "b",
                       "ab",           "user",       "\xC4\xA0", "\xC4\x8A"};
  vocabulary.kinds.assign(vocabulary.tokens.size(), text::TokenKind::kNormal);
  vocabulary.kinds[0] = vocabulary.kinds[1] = text::TokenKind::kControl;
  vocabulary.merges = {"a b"};
  vocabulary.bos = 0;
  vocabulary.eos = 1;
  return text::Tokenizer::make(vocabulary, "tokenizer");
}

const train::DocumentTokenizer& tokenizer() {
  static const train::DocumentTokenizer made(
      make_tokenizer(), text::ChatTemplate::parse(
                            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim "
                            "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>"
                            "assistant\n{% endif %}",
                            "template"));
  return made;
}

void encode(const train::Document& document) {
  const train::DocumentTokens tokens = tokenizer().encode(document);
  testing::expect(tokens.is_learned.empty() || tokens.is_learned.size() == tokens.ids.size(),
                  "a mask has a value per token");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::InputFile file("a.txt");
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  testing::run_input([&] { encode(train::parse_json_document(bytes, "a.jsonl:1")); });
  for (const auto kind : {train::TextFiles::kOneDocument, train::TextFiles::kBlankLines,
                          train::TextFiles::kFormFeeds, train::TextFiles::kLines}) {
    testing::run_input([&] {
      constexpr size_t kPartBytes = 16;
      train::DocumentReader reader({file.write(bytes)}, kind, kPartBytes);
      train::Document document;
      bool is_open = false;
      while (reader.next(document)) {
        const auto& part = std::get<train::TextPart>(document.content);
        testing::expect(part.is_first != is_open, "documents begin and end in turn");
        const bool is_end = part.is_last && !part.is_first;
        testing::expect(!part.text.empty() || is_end, "no part is empty but a long text's last");
        is_open = !part.is_last;
        encode(document);
      }
      testing::expect(!is_open, "the last document ends");
    });
  }
  return 0;
}
