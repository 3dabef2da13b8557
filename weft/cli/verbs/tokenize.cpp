#include <nlohmann/json.hpp>

#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::cli {

int run_tokenize(const Args& args) {
  CLI::App app("Shows the tokens of a text; special tokens are neither added nor parsed.",
               "tokenize");
  std::string model, prompt;
  bool is_json = false;
  app.add_option("model,-m,--model", model, "the model whose tokenizer is used");
  app.add_option("-p,--prompt", prompt, "the text; - reads stdin");
  app.add_flag("--json", is_json, "print {\"tokens\": […]}");
  if (!parse_flags(app, args, {"--prompt"})) return 0;
  const text::Tokenizer tokenizer =
      models::load_tokenizer(*io::TensorFile::open(model_path(model)));
  const std::vector<text::TokenId> ids = tokenizer.encode(prompt == "-" ? read_stdin() : prompt);
  std::string out;
  if (is_json) {
    out = core::dump_json({{"tokens", ids}}) + "\n";
  } else {
    for (const text::TokenId id : ids) {
      out += core::join(id, "\t", core::dump_json(std::string(tokenizer.bytes(id))), "\n");
    }
  }
  TextOutput().write(out);
  return 0;
}

}  // namespace weft::cli
