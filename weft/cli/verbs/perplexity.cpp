#include "weft/generate/scoring/perplexity.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/model/adapter.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/divergence.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/generate/share_prompt.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;
constexpr int64_t kDefaultWindow = 512;

// Rank 0's tokens on all ranks: what the tokenizer puts before a text, then the text's.
std::vector<int64_t> read_tokens(const Session& session, const PerplexityVerbOptions& options,
                                 int64_t& first_token) {
  std::vector<int64_t> tokens;
  std::vector<int64_t> prefix;
  if (session.is_root()) {
    const text::Tokenizer tokenizer = models::load_tokenizer(*session.file);
    prefix = {tokenizer.prefix().begin(), tokenizer.prefix().end()};
    const auto ids = tokenizer.encode_prompt(core::read_text_file(options.file, kMaxTextBytes));
    tokens = {ids.begin(), ids.end()};
  }
  prefix = generate::share_tokens(session.group(), prefix);
  first_token = prefix.empty() ? -1 : prefix.front();
  return generate::share_tokens(session.group(), tokens);
}

void show_progress(const generate::PerplexityResult& so_far, int64_t windows) {
  std::fprintf(stderr, "\rwindow %lld of %lld, perplexity %.4f",
               static_cast<long long>(so_far.num_windows), static_cast<long long>(windows),
               so_far.perplexity);
  if (so_far.num_windows == windows) std::fputs("\n", stderr);
}

std::string report(const generate::PerplexityResult& result, const nlohmann::json& object) {
  char line[160];
  std::snprintf(line, sizeof line, "perplexity %.4f +/- %.4f\n", result.perplexity,
                result.standard_error);
  return line + core::join(result.num_scored, " tokens scored in ", result.num_windows,
                           " windows of ", object.at("ctx_size").dump(), ", ",
                           static_cast<int64_t>(object.at("tokens_per_s").get<double>()),
                           " tokens/s\n");
}

int perplexity_on_ranks(const ModelOptions& model, const dist::World& world,
                        const PerplexityVerbOptions& options) {
  const Session session = open_session(model, world);
  generate::PerplexityOptions scoring = options.scoring;
  scoring.uses_cache = model.activations != "float" || !model.cache_type.empty();
  const std::vector<int64_t> tokens = read_tokens(session, options, scoring.first_token);
  if (!options.against.empty()) {
    return compare_predictions(session, {model, options.against}, world, tokens, scoring,
                               options.is_json);
  }
  const bool shows_progress = session.is_root() && ::isatty(STDERR_FILENO) == 1;
  const auto result = generate::perplexity(*session.loaded.model, tokens, scoring,
                                           [&](const auto& so_far, int64_t windows) {
                                             if (shows_progress) show_progress(so_far, windows);
                                           });
  if (!session.is_root()) return 0;
  int64_t read = 0;
  const auto windows = score_windows(static_cast<int64_t>(tokens.size()), scoring);
  for (const auto& window : windows) read += window.length;
  const nlohmann::json object = {{"perplexity", result.perplexity},
                                 {"standard_error", result.standard_error},
                                 {"mean_loss", result.mean_loss},
                                 {"tokens", tokens.size()},
                                 {"scored_tokens", result.num_scored},
                                 {"windows", result.num_windows},
                                 {"ctx_size", scoring.context},
                                 {"stride", scoring.stride},
                                 {"tokens_per_s", static_cast<double>(read) / result.seconds},
                                 {"tp", session.group().size()},
                                 {"model", session.path}};
  TextOutput().write(options.is_json ? core::dump_json(object) + "\n" : report(result, object));
  return 0;
}

// From headers and the file's presence, so that a bad request costs no loading.
void check_request(PerplexityVerbOptions& options) {
  [[maybe_unused]] const core::File opened(options.file);
  const auto config = models::read_config(*io::TensorFile::open(base_path(options.model)));
  check_reference({options.model, options.against}, config);
  int64_t& context = options.scoring.context;
  if (context == 0) context = std::min(kDefaultWindow, config.max_positions);
  core::check<core::ConfigError>(context <= config.max_positions, "--ctx-size: ", context,
                                 ", expected 4 to ", config.max_positions, " for this model");
  core::check<core::ConfigError>(options.scoring.stride <= context,
                                 "--stride: ", options.scoring.stride,
                                 ", expected 1 to the window's ", context);
}

}  // namespace

int run_perplexity(const PerplexityVerbOptions& given) {
  PerplexityVerbOptions options = given;
  check_request(options);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return perplexity_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
