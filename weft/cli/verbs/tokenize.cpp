#include <nlohmann/json.hpp>

#include "weft/cli/flags.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::cli {

int run_tokenize(const TokenizeOptions& options) {
  const text::Tokenizer tokenizer =
      models::load_tokenizer(*io::TensorFile::open(model_path(options.model)));
  const std::string text = options.prompt == "-" ? read_stdin() : options.prompt;
  const std::vector<text::TokenId> ids =
      options.adds_special ? tokenizer.encode_whole(text) : tokenizer.encode(text);
  std::string out;
  if (options.is_json) {
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
