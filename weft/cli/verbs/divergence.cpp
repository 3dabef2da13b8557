#include "weft/cli/verbs/divergence.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/streams.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/generate/scoring/divergence.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

constexpr const char* kSameModel = "float";

// Whatever rounds is left out of the reference.
ModelOptions reference_options(const Reference& reference) {
  ModelOptions options = reference.model;
  options.activations = "float";
  options.cache_type.clear();
  options.device = "cpu";
  options.halves_as_stored = false;
  if (reference.against == kSameModel) return options;
  options.path = reference.against;
  options.adapter.clear();
  options.shard_info.clear();
  options.functions.clear();
  return options;
}

std::string report(const generate::DivergenceResult& result) {
  char text[400];
  std::snprintf(text, sizeof text,
                "KL divergence %.3g +/- %.1g, median %.3g, 99.9 %% %.3g, largest %.3g\n"
                "same best token %.2f %% +/- %.2f %%\n"
                "perplexity %.4f, the reference's %.4f\n"
                "%lld positions in %lld windows\n",
                result.mean, result.standard_error, result.median, result.p99_9, result.largest,
                100 * result.same_best, 100 * result.same_best_error, result.perplexity,
                result.reference_perplexity, static_cast<long long>(result.num_scored),
                static_cast<long long>(result.num_windows));
  return text;
}

nlohmann::json to_json(const generate::DivergenceResult& result) {
  return {{"kl_divergence",
           {{"mean", result.mean},
            {"standard_error", result.standard_error},
            {"median", result.median},
            {"p99_9", result.p99_9},
            {"largest", result.largest}}},
          {"same_best", result.same_best},
          {"same_best_error", result.same_best_error},
          {"perplexity", result.perplexity},
          {"reference_perplexity", result.reference_perplexity},
          {"scored_tokens", result.num_scored},
          {"windows", result.num_windows},
          {"seconds", result.seconds}};
}

}  // namespace

void check_reference(const Reference& reference, const models::ModelConfig& config) {
  if (reference.against.empty() || reference.against == kSameModel) return;
  const auto other = models::read_config(*io::TensorFile::open(reference.against));
  core::check<core::ConfigError>(other.vocab_size == config.vocab_size,
                                 "--against: ", reference.against, ": a vocabulary of ",
                                 other.vocab_size, ", expected the model's ", config.vocab_size);
}

int compare_predictions(const Session& session, const Reference& reference,
                        const dist::World& world, const std::vector<int64_t>& tokens,
                        const generate::PerplexityOptions& scoring, bool is_json) {
  const Session other = open_session(reference_options(reference), world);
  const bool shows_progress = session.is_root() && ::isatty(STDERR_FILENO) == 1;
  const auto result = generate::divergence(
      *session.loaded.model, *other.loaded.model, tokens, scoring,
      [&](int64_t done, int64_t windows) {
        if (shows_progress) {
          std::fprintf(stderr, "\rwindow %lld of %lld%s", static_cast<long long>(done),
                       static_cast<long long>(windows), done == windows ? "\n" : "");
        }
      });
  if (!session.is_root()) return 0;
  nlohmann::json object = to_json(result);
  object.update({{"tokens", tokens.size()},
                 {"ctx_size", scoring.context},
                 {"stride", scoring.stride},
                 {"tp", session.group().size()},
                 {"model", session.path},
                 {"against", reference.against}});
  TextOutput().write(is_json ? core::dump_json(object) + "\n" : report(result));
  return 0;
}

}  // namespace weft::cli
