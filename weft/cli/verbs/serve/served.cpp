#include "weft/cli/verbs/serve/served.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/generate/text_generator.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

std::string name_of(const ServedOptions& options, const std::string& path) {
  if (!options.alias.empty()) return options.alias;
  return std::filesystem::path(path).lexically_normal().filename().string();
}

}  // namespace

serve::SchedulerOptions scheduler_options(const ServedOptions& options, const Session& session) {
  serve::SchedulerOptions scheduler;
  const int64_t limit = session.loaded.model->config().max_positions;
  const int64_t context = std::min(generate::TextGenerator::kDefaultContext, limit);
  constexpr int64_t kPieces = 4;
  scheduler.context = options.context != 0 ? options.context : context;
  scheduler.slots = options.slots;
  scheduler.max_queue = options.max_queue;
  scheduler.step_tokens = options.step_tokens != 0 ? options.step_tokens
                                                   : options.slots + kPieces * serve::kPieceTokens;
  return scheduler;
}

serve::PrefixCacheOptions prefix_options(const ServedOptions& options, const Session& session,
                                         const serve::StepRunner& runner) {
  constexpr int64_t kMiB = 1 << 20;
  serve::PrefixCacheOptions prefix;
  if (options.prefix_cache_mb == 0) return prefix;
  if (!runner.model().has_cache_of_positions()) {
    if (runner.group().rank() == 0) {
      core::log(core::LogLevel::kInfo, options.model.command.front(),
                ": the model has recurrent layers, whose states can't be cut: every prompt is ",
                "read from its beginning");
    }
    return prefix;
  }
  prefix.model = session.path + '\n' + options.model.adapter;
  prefix.page_bytes = runner.page_bytes();
  prefix.num_pages = options.prefix_cache_mb * kMiB / prefix.page_bytes;
  core::check<core::ConfigError>(
      prefix.num_pages > 0, "--prefix-cache-mb: ", options.prefix_cache_mb,
      ", expected 0 or at least ", (prefix.page_bytes + kMiB - 1) / kMiB, " for this model");
  return prefix;
}

serve::ServedModel served_model(const ServedOptions& options, const Session& session,
                                serve::Scheduler& scheduler) {
  const models::ModelConfig& config = session.loaded.model->config();
  return {name_of(options, session.path),
          &scheduler,
          models::load_tokenizer(*session.file),
          models::load_chat_template(*session.file),
          config.vocab_size,
          config.width,
          options.pooling == "mean" ? serve::Pooling::kMean : serve::Pooling::kLast};
}

}  // namespace weft::cli
