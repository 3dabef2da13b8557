#include <ATen/ops/tensor.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/bench_profile.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/serve/bench_load.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/profile.h"
#include "weft/generate/batch.h"
#include "weft/generate/engine.h"

namespace weft::cli {
namespace {

struct Speeds {
  std::vector<double> prefill;
  std::vector<double> decode;
  /// Of a run that writes.
  int64_t num_guessed = 0;
  int64_t num_guessed_right = 0;
};

// Thrown on all ranks: what was cut short has no speed.
struct Interrupted {
  int signal;
};

// Whether a signal has asked any rank to stop is known to all of them alike only after this.
// Collective.
void check_interrupt(const dist::Group& group) {
  at::Tensor asked = at::tensor({static_cast<int64_t>(caught_signal())}, at::kLong);
  group.all_reduce(asked, dist::ReduceOp::kMax);
  if (asked.item<int64_t>() != 0) throw Interrupted{asked.item<int>()};
}

// Positions that a run takes.
int64_t positions_of(const BenchOptions& options) {
  return options.depth + std::max(options.prompt_tokens, options.new_tokens + 1);
}

void check_positions(const BenchOptions& options, const models::CausalLM& model) {
  core::check<core::ConfigError>(positions_of(options) <= model.config().max_positions,
                                 "bench: ", positions_of(options), " positions, expected at most ",
                                 model.config().max_positions,
                                 " for this model; give a smaller -d, -p or -n");
}

// Tokens of no meaning, the same in every run: the speed does not depend on them.
std::vector<int64_t> prompt_of(int64_t length, int64_t vocab_size) {
  std::vector<int64_t> tokens(static_cast<size_t>(length));
  uint64_t state = 1;
  for (int64_t& token : tokens) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size));
  }
  return tokens;
}

// Reading a prompt and writing after a single token are measured separately, as others do.
class Runs {
 public:
  Runs(const BenchOptions& options, const Session& session)
      : options_(options),
        engine_(session.loaded.model, positions_of(options)),
        prompt_(prompt_of(options.depth + options.prompt_tokens,
                          engine_.model().config().vocab_size)) {}

  // Reads what precedes both; the engine keeps it for the next two.
  void prepare() {
    engine_.reset();
    if (options_.depth > 0) run(first(options_.depth), 0);
  }
  generate::GenerateResult read() { return run(prompt_, 0); }
  generate::GenerateResult write() { return run(first(options_.depth + 1), options_.new_tokens); }

 private:
  std::span<const int64_t> first(int64_t tokens) const {
    return std::span(prompt_).first(static_cast<size_t>(tokens));
  }

  generate::GenerateResult run(std::span<const int64_t> tokens, int64_t new_tokens) {
    generate::GenerateOptions generate_options;
    generate_options.max_tokens = new_tokens;
    generate_options.speculate = options_.speculate;
    return engine_.generate({tokens.begin(), tokens.end()}, generate_options, [](int64_t) {
      return is_interrupted() ? generate::Verdict::kCancel : generate::Verdict::kContinue;
    });
  }

  const BenchOptions& options_;
  generate::Engine engine_;
  std::vector<int64_t> prompt_;
};

Speeds measure(const BenchOptions& options, const dist::Group& group, Runs& runs) {
  Speeds speeds;
  // The first round warms caches up and is not counted.
  for (int64_t round = 0; round <= options.runs; ++round) {
    runs.prepare();
    const auto read = runs.read();
    const auto written = runs.write();
    check_interrupt(group);
    if (round == 0) continue;
    speeds.prefill.push_back(static_cast<double>(options.prompt_tokens) / read.prefill_seconds);
    // The first new token comes with the prompt.
    const auto tokens = static_cast<double>(written.tokens.size() - 1);
    speeds.decode.push_back(tokens / written.decode_seconds);
    speeds.num_guessed = written.num_guessed;
    speeds.num_guessed_right = written.num_guessed_right;
  }
  return speeds;
}

// What one more run of each kind takes by parts, and what the machine could do.
void add_profile(const BenchOptions& options, const Session& session, Runs& runs,
                 nlohmann::json& report) {
  const dist::Group& group = session.group();
  runs.prepare();
  core::set_profiling(true);
  runs.read();
  check_interrupt(group);
  report["prefill_profile"] = profile_of_ranks(group, options.prompt_tokens);
  core::set_profiling(true);
  runs.write();
  check_interrupt(group);
  report["decode_profile"] = profile_of_ranks(group, options.new_tokens);
  core::set_profiling(false);
  report["roofline"] = roofline(work_of(*session.loaded.model), measure_limits(group),
                                report["prefill_tokens_per_s"]["median"].get<double>(),
                                report["decode_tokens_per_s"]["median"].get<double>());
}

// Sequences that begin with one token each, all different, in tokens per second of all together.
std::vector<double> measure_batch(const BenchOptions& options, int64_t sequences,
                                  const Session& session) {
  models::CausalLM& model = *session.loaded.model;
  const auto firsts = prompt_of(sequences, model.config().vocab_size);
  const at::Tensor prompts_BT = at::tensor(firsts, at::kLong).unsqueeze(1);
  std::vector<double> speeds;
  for (int64_t round = 0; round <= options.runs; ++round) {
    const auto written = generate::generate_batch(model, prompts_BT, options.new_tokens,
                                                  [] { return !is_interrupted(); });
    check_interrupt(model.group());
    const auto steps = static_cast<double>(written.tokens_BT.size(1) - 1);
    if (round > 0) {
      speeds.push_back(steps * static_cast<double>(sequences) / written.decode_seconds);
    }
  }
  return speeds;
}

nlohmann::json summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {{"median", median}, {"min", values.front()}, {"max", values.back()}};
}

nlohmann::json measure_batches(const BenchOptions& options, const Session& session) {
  nlohmann::json batches = nlohmann::json::array();
  for (const int64_t sequences : options.batches) {
    const nlohmann::json all = summary(measure_batch(options, sequences, session));
    const double each = all["median"].get<double>() / static_cast<double>(sequences);
    batches.push_back({{"sequences", sequences},
                       {"decode_tokens_per_s", all},
                       {"decode_tokens_per_s_of_each", each}});
  }
  return batches;
}

std::vector<int64_t> peak_bytes_of_ranks(const dist::Group& group) {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const at::Tensor own = at::tensor({static_cast<int64_t>(usage.ru_maxrss) * 1024}, at::kLong);
  const std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 1);
  const at::Tensor all = group.all_gather(own, 0, sizes);
  const auto* data = all.const_data_ptr<int64_t>();
  return {data, data + all.numel()};
}

std::string row(const std::string& title, const nlohmann::json& value) {
  char line[160];
  std::snprintf(line, sizeof line, "%-22s %10.1f tokens/s  (%.1f to %.1f)", title.c_str(),
                value["median"].get<double>(), value["min"].get<double>(),
                value["max"].get<double>());
  return line;
}

std::string batch_rows(const nlohmann::json& batches) {
  std::string rows;
  for (const nlohmann::json& each : batches) {
    char of_each[48];
    std::snprintf(of_each, sizeof of_each, ", %.1f each\n",
                  each["decode_tokens_per_s_of_each"].get<double>());
    rows += row(core::join("generation of ", each["sequences"].get<int64_t>()),
                each["decode_tokens_per_s"]) +
            of_each;
  }
  return rows;
}

std::string table(const nlohmann::json& report) {
  const nlohmann::json& speculation = report["speculation"];
  const auto guessed = speculation["guessed"].get<int64_t>();
  std::string text = row("prompt", report["prefill_tokens_per_s"]) + "\n" +
                     row("generation", report["decode_tokens_per_s"]) + "\n";
  if (guessed > 0) {
    text += core::join("guessed ", guessed, " tokens a run, ", speculation["right"].dump(),
                       " of them right\n");
  }
  return text + batch_rows(report["batches"]) +
         core::join("load ", report["load_s"].get<double>(), " s, peak memory per rank ",
                    report["peak_rss_bytes"].dump(), " bytes, tp ", report["tp"].get<int>(), "\n");
}

std::string profile_table(const nlohmann::json& report) {
  if (!report.contains("roofline")) return "";
  return roofline_text(report["roofline"]) + profile_text("prompt", report["prefill_profile"]) +
         profile_text("generation", report["decode_profile"]);
}

void measure_and_show(const ModelOptions& model, const Session& session,
                      const BenchOptions& options) {
  check_positions(options, *session.loaded.model);
  Runs runs(options, session);
  const Speeds speeds = measure(options, session.group(), runs);
  nlohmann::json report = {
      {"prefill_tokens_per_s", summary(speeds.prefill)},
      {"decode_tokens_per_s", summary(speeds.decode)},
      {"speculation",
       {{"most", options.speculate},
        {"guessed", speeds.num_guessed},
        {"right", speeds.num_guessed_right}}},
      {"batches", measure_batches(options, session)},
      {"load_s", session.load_seconds},
      {"peak_rss_bytes", peak_bytes_of_ranks(session.group())},
      {"tp", session.group().size()},
      {"dtype", "float32"},
      {"activations", model.activations},
      {"cache_type", cache_type_of(session.loaded.model->make_cache(1, 1).dtype())},
      {"prompt_tokens", options.prompt_tokens},
      {"new_tokens", options.new_tokens},
      {"depth", options.depth},
      {"runs", options.runs},
      {"model", session.path}};
  if (options.is_profiled) add_profile(options, session, runs, report);
  if (session.is_root()) {
    TextOutput().write(options.is_json ? core::dump_json(report) + "\n"
                                       : table(report) + profile_table(report));
  }
}

int bench_on_ranks(const ModelOptions& model, const dist::World& world,
                   const BenchOptions& options) {
  watch_interrupt();
  const Session session = open_session(model, world);
  try {
    measure_and_show(model, session, options);
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  }
  return 0;
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (!options.load.asked.url.empty()) return run_bench_load(options);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return bench_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
