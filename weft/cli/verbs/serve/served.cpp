#include "weft/cli/verbs/serve/served.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "weft/cli/hub_cache.h"
#include "weft/cli/streams.h"
#include "weft/cli/version.h"
#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/sha256.h"
#include "weft/dist/launch/status_page.h"
#include "weft/generate/text_generator.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/fingerprint.h"
#include "weft/serve/engine/run_steps.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::cli {
namespace {

// A model of Hugging Face's cache is called as it was asked for: its folder is a revision.
std::string name_of(const ServedOptions& options, const std::string& path) {
  if (!options.alias.empty()) return options.alias;
  const std::string& given = options.model.path;
  if (!given.empty() && path_in_hub_cache(given) != given) return given;
  const auto normal = std::filesystem::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

// Ranks meet several times a second even without requests; alone, a step's time tells.
std::string standstill() {
  constexpr std::chrono::seconds kLimit{10};
  const dist::StatusPage* const page = dist::shared_status_page();
  return page == nullptr || page->num_ranks() == 1 ? "" : dist::standstill(*page, kLimit);
}

// Of what an answer's bits depend on beside its request and the machine.
std::string fingerprint_of(const ServedOptions& options, const Session& session) {
  constexpr size_t kDigits = 12;
  const ModelOptions& model = options.model;
  std::string facts = core::join(
      version_text(), models::fingerprint(*session.file), '\n', session.group().size(), ' ',
      at::get_num_threads(), ' ', model.is_exact, ' ', model.activations, ' ', model.cache_type,
      ' ', model.device, ' ', model.expert_split, ' ', model.head_split, ' ', model.adapter);
  for (const NamedAdapter& each : model.named_adapters) {
    facts += core::join('\n', each.name, '=', each.path);
  }
  return "fp_" + core::hex_text(core::sha256(facts)).substr(0, kDigits);
}

std::vector<std::string> adapter_names(const ServedOptions& options) {
  std::vector<std::string> names;
  for (const NamedAdapter& each : options.model.named_adapters) names.push_back(each.name);
  return names;
}

void check_names(const ServedOptions& options, const std::string& path) {
  const std::string model = name_of(options, path);
  for (const std::string& name : adapter_names(options)) {
    core::check<core::ConfigError>(name != model, "--adapter: ", core::quote(name),
                                   " is what requests call the model, expected another name");
  }
}

// What flags and model make of a scheduler, without a prefix cache.
serve::SchedulerOptions scheduler_options(const ServedOptions& options, const Session& session) {
  serve::SchedulerOptions scheduler;
  const int64_t limit = session.loaded.model->config().max_positions;
  const int64_t context = std::min(generate::TextGenerator::kDefaultContext, limit);
  constexpr int64_t kPieces = 4;
  scheduler.context = options.context != 0 ? options.context : context;
  scheduler.slots = options.slots;
  scheduler.max_queue = options.max_queue;
  scheduler.speculate = options.speculate;
  scheduler.max_slowdown = options.max_slowdown;
  const int64_t guesses = options.speculate > 0 ? generate::kMostGuesses : 0;
  scheduler.step_tokens = options.step_tokens != 0
                              ? options.step_tokens
                              : options.slots + guesses + kPieces * serve::kPieceTokens;
  return scheduler;
}

// As many pages as fit into what was asked for. Collective.
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

// As many pieces as fit into what was asked for, and room for one sequence. Collective.
void bound_memory(const ServedOptions& options, serve::StepRunner& runner,
                  serve::SchedulerOptions& scheduler) {
  constexpr int64_t kMiB = 1 << 20;
  if (options.kv_cache_mb == 0) return;
  const int64_t bytes = runner.page_bytes();
  const bool is_long = runner.model().config().rope_scaling.type == nn::RopeType::kLongRope;
  core::check<core::ConfigError>(
      bytes > 0 && !is_long, "--kv-cache-mb: of a model ",
      is_long ? "with longrope, whose angles follow the cache's size" : "without keys and values",
      ", expected 0; leave it out");
  scheduler.kv_pieces = options.kv_cache_mb * kMiB / bytes;
  scheduler.state_pieces = (runner.state_bytes() + bytes - 1) / bytes;
  const int64_t least = scheduler.state_pieces + serve::pieces_of(runner.context());
  core::check<core::ConfigError>(
      scheduler.kv_pieces >= least, "--kv-cache-mb: ", options.kv_cache_mb,
      ", expected 0 or at least ", (least * bytes + kMiB - 1) / kMiB, " for one sequence of ",
      runner.context(), " tokens; give more or a smaller --ctx-size");
  runner.take_memory_in_pieces();
}

// Where a pass takes one token of a sequence, a guess has no place in it.
void stop_guesses_if_alone(const ServedOptions& options, const dist::World& world,
                           serve::SchedulerOptions& scheduler) {
  if (options.speculate == 0 || scheduler.most_as_alone > 1) return;
  scheduler.speculate = 0;
  if (world.rank() != 0) return;
  core::log(core::LogLevel::kWarn, options.model.command.front(),
            ": --speculate: no tokens are guessed, as this model's passes take one token of a "
            "sequence");
}

// Where a pass can't pause between layers, running answers wait for a whole piece of a prompt.
void tell_if_unpaced(const ServedOptions& options, const dist::World& world,
                     const serve::SchedulerOptions& scheduler) {
  if (options.max_slowdown == 0 || scheduler.num_layers > 1 || world.rank() != 0) return;
  core::log(core::LogLevel::kInfo, options.model.command.front(),
            ": --max-slowdown has no effect, as this model's passes read a prompt's piece through "
            "all layers at once");
}

// Why ranks are lost, as those say it that saw it first. This one may have stood still itself, and
// then sees only that the others have ended for it.
std::string reason_of(const std::exception& error) {
  const std::string first = dist::first_words();
  constexpr std::string_view kLead = "weft: CommError: ";
  return first.starts_with(kLead) ? first.substr(kLead.size()) : error.what();
}

}  // namespace

void ServedFront::open(const ServedOptions& options, const Session& session,
                       const serve::SchedulerOptions& scheduler) {
  text::Tokenizer tokenizer = models::load_tokenizer(*session.file);
  scheduler_ = std::make_unique<serve::Scheduler>(scheduler, tokenizer);
  const models::ModelConfig& config = session.loaded.model->config();
  open_model({name_of(options, session.path), scheduler_.get(), std::move(tokenizer),
              models::load_chat_template(*session.file), config.vocab_size, config.width,
              options.pooling == "mean" ? serve::Pooling::kMean : serve::Pooling::kLast,
              adapter_names(options), fingerprint_of(options, session), standstill});
}

int run_served(const ServedOptions& options, const ModelOptions& model, const dist::World& world,
               const std::function<std::unique_ptr<ServedFront>()>& make_front) {
  check_names(options, model.path);
  watch_interrupt();
  watch_termination();
  const std::unique_ptr<ServedFront> front = world.rank() == 0 ? make_front() : nullptr;
  try {
    const Session session = open_session(model, world);
    serve::SchedulerOptions scheduler = scheduler_options(options, session);
    serve::StepRunner runner(session.loaded.model, scheduler.context, scheduler.slots);
    scheduler.prefix = prefix_options(options, session, runner);
    bound_memory(options, runner, scheduler);
    scheduler.most_as_alone = runner.most_as_alone();
    scheduler.num_layers = runner.num_layers();
    stop_guesses_if_alone(options, world, scheduler);
    tell_if_unpaced(options, world, scheduler);
    if (front) front->open(options, session, scheduler);
    serve::run_steps(runner, front ? front->scheduler() : nullptr, scheduler,
                     [&] { front->before_step(); });
  } catch (const std::exception& error) {
    if (front) front->fail(reason_of(error));
    throw;
  }
  if (front) front->finish();
  // A rank other than 0 may have got no signal of its own.
  return caught_signal() == 0 ? 0 : 128 + caught_signal();
}

}  // namespace weft::cli
