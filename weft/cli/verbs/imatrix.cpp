#include <unistd.h>

#include <cstdio>

#include "weft/cli/model/adapter.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/launch/run_together.h"
#include "weft/generate/share_prompt.h"
#include "weft/models/config/sources.h"
#include "weft/models/quantize/collect.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxCalibrationBytes = uint64_t{256} << 20;
constexpr int64_t kDefaultChunk = 512;

// Rank 0's tokens on all ranks.
std::vector<int64_t> read_tokens(const Session& session, const std::string& path,
                                 int64_t& first_token) {
  std::vector<int64_t> tokens, prefix;
  if (session.is_root()) {
    const text::Tokenizer tokenizer = models::load_tokenizer(*session.file);
    prefix = {tokenizer.prefix().begin(), tokenizer.prefix().end()};
    const auto ids = tokenizer.encode_prompt(core::read_text_file(path, kMaxCalibrationBytes));
    tokens = {ids.begin(), ids.end()};
  }
  prefix = generate::share_tokens(session.group(), prefix);
  first_token = prefix.empty() ? -1 : prefix.front();
  return generate::share_tokens(session.group(), tokens);
}

int imatrix_on_ranks(const ModelOptions& model, const dist::World& world,
                     const ImatrixOptions& options) {
  const Session session = open_session(model, world);
  models::CollectOptions wanted;
  wanted.context = options.context;
  wanted.max_chunks = options.max_chunks;
  wanted.takes_products = options.takes_products;
  const auto tokens = read_tokens(session, options.text, wanted.first_token);
  models::Importance importance;
  {
    ProgressBar bar("reading", "chunks", 1, session.is_root());
    importance = models::collect_importance(
        *session.loaded.model, tokens, wanted, [&](int64_t done, int64_t chunks) {
          bar.show(static_cast<uint64_t>(done), static_cast<uint64_t>(chunks));
        });
  }
  importance.texts = {options.text};
  dist::run_together(session.group(), [&] {
    if (session.is_root()) models::write_importance(importance, options.out);
  });
  return 0;
}

}  // namespace

int run_imatrix(const ImatrixOptions& given) {
  ImatrixOptions options = given;
  [[maybe_unused]] const core::File opened(options.text);
  const std::string base = base_path(options.model);
  Inputs inputs = model_inputs(options.model, base);
  inputs.push_back(options.text);
  check_new_file(options.out, options.force, inputs);
  core::check<core::ConfigError>(!options.takes_products || options.model.tp <= 1,
                                 "--products: with --tp ", options.model.tp,
                                 ", expected 1: no rank has all inputs of a matrix cut by columns");
  const auto config = models::read_config(*io::TensorFile::open(base));
  if (options.context == 0) options.context = std::min(kDefaultChunk, config.max_positions);
  core::check<core::ConfigError>(options.context <= config.max_positions,
                                 "--ctx-size: ", options.context, ", expected 4 to ",
                                 config.max_positions, " for this model");
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return imatrix_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
