#include "weft/text/tokenizer_json/gguf_vocabulary.h"

#include <algorithm>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/tokenizer_json/field.h"
#include "weft/text/tokenizer_json/tiktoken_model.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"

namespace weft::text {
namespace {

using core::check;
using core::ConfigError;

constexpr uint64_t kMaxTokenizerFile = 100'000'000;
// Digits, cases, contractions, spaces, line ends, marks and scripts: what families cut differently.
constexpr char kProbe[] =
    "Hello, WORLD! I'VE 1 12 123 1234567 we're DON'T  two  spaces\n\n \t tabs\r\n\r\nGr\xC3\xB6\xC3"
    "\x9F"
    "e caf\xC3\xA9 cafe\xCC\x81 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 "
    "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x82 x=y+1; // camelCase snake_case /path/to  "
    "\xE2\x91\xA0"
    "\xC2\xB2   end  up\xE4\xBD\xA0\xE5\xA5\xBDON();\n/";

// "left right"; newer files have pairs.
std::string merge_text(const JsonField& field) {
  if (field.is_text()) return field.text();
  const std::vector<JsonField> pair = field.list();
  check<core::FormatError>(pair.size() == 2, field.where(), ": expected two tokens, got ",
                           pair.size(), "; the file is damaged");
  return pair[0].text() + " " + pair[1].text();
}

std::vector<std::string> read_merges(const JsonField& model) {
  std::vector<std::string> merges;
  for (const JsonField& merge : model.at("merges").list()) merges.push_back(merge_text(merge));
  return merges;
}

// The family's name, or nothing if none of those known gives the same ids.
std::string find_family(Vocabulary vocabulary, const Tokenizer& tokenizer,
                        const std::string& where) {
  const std::vector<TokenId> expected = tokenizer.encode(kProbe);
  for (const std::string_view name : pre_tokenizer_names()) {
    vocabulary.pre_tokenizer = name;
    if (Tokenizer::make(vocabulary, where).encode(kProbe) == expected) return std::string(name);
  }
  return {};
}

}  // namespace

Vocabulary read_gguf_vocabulary(const std::string& folder, bool knows_characters) {
  const LoadedTokenizer loaded = read_tokenizer_folder(folder);
  if (loaded.tokenizer.vocabulary().pre_tokenizer == "kimi-k2") {
    Vocabulary vocabulary = loaded.tokenizer.vocabulary();
    vocabulary.merges = tiktoken_merges(vocabulary);
    return vocabulary;
  }
  const std::string path = folder + "/tokenizer.json";
  const core::Json json = core::parse_json(core::read_text_file(path, kMaxTokenizerFile), path);
  const JsonField model = JsonField(json, path).at("model");
  const bool is_of_characters = model.flag_or("byte_fallback", false);
  check<ConfigError>(!is_of_characters || knows_characters, path,
                     ": a SentencePiece tokenizer, expected byte-level BPE; convert its GGUF "
                     "instead");
  Vocabulary vocabulary = loaded.tokenizer.vocabulary();
  vocabulary.model = is_of_characters ? "gemma4" : "gpt2";
  vocabulary.merges = read_merges(model);
  const std::vector<TokenId>& prefix = loaded.tokenizer.prefix();
  const std::vector<TokenId>& suffix = loaded.tokenizer.suffix();
  vocabulary.add_bos = vocabulary.bos >= 0 && prefix == std::vector<TokenId>{vocabulary.bos};
  vocabulary.add_eos = vocabulary.eos >= 0 && suffix == std::vector<TokenId>{vocabulary.eos};
  if (is_of_characters) {
    check<ConfigError>(
        Tokenizer::make(vocabulary, path).encode(kProbe) == loaded.tokenizer.encode(kProbe), path,
        ": cuts texts otherwise than GGUF's tokenizer of Gemma 4; keep the folder");
    return vocabulary;
  }
  vocabulary.pre_tokenizer = find_family(vocabulary, loaded.tokenizer, path);
  check<ConfigError>(!vocabulary.pre_tokenizer.empty(), path,
                     ": its pre-tokenizer is of no family that GGUF has a name for here; keep the "
                     "folder");
  return vocabulary;
}

}  // namespace weft::text
