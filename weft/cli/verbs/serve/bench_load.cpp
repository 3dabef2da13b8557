#include "weft/cli/verbs/serve/bench_load.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/output.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/serve/key_file.h"
#include "weft/cli/verbs/serve/load_chart.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/json.h"
#include "weft/core/terminal/printable.h"

namespace weft::cli {
namespace {

using nlohmann::json;

// Each measurement as it ends; with --json all of them at the end.
class Measurements {
 public:
  explicit Measurements(const BenchOptions& options)
      : options_(options),
        report_({{"url", options.load.asked.url},
                 {"prompt_words", options.prompt_tokens},
                 {"shared_words", options.load.asked.shared_words},
                 {"new_tokens", options.new_tokens},
                 {"seed", options.load.asked.seed},
                 {"runs", json::array()}}) {}

  void add(const serve::LoadOptions& asked, const serve::LoadResult& result) {
    const bool is_open = asked.rate > 0;
    json run = serve::load_report(result, options_.load.limits);
    is_open ? run["rate"] = asked.rate : run["clients"] = asked.num_clients;
    const std::string title = is_open ? core::join("rate ", asked.rate, " requests/s")
                                      : core::join("clients ", asked.num_clients);
    if (!options_.is_json) {
      TextOutput().write((report_["runs"].empty() ? head(result.model) : "") +
                         serve::load_text(title, run));
    }
    report_["model"] = result.model;
    report_["runs"].push_back(std::move(run));
    if (result.num_failed == 0) return;
    has_failed_ = true;
    std::fprintf(stderr, "weft bench: %s: %zu of %zu requests failed: %s\n", title.c_str(),
                 result.num_failed, result.num_failed + result.answers.size(),
                 core::printable(result.first_failure).c_str());
  }

  int finish() const {
    constexpr int kRefused = 5;
    if (options_.is_json) TextOutput().write(core::dump_json(report_) + "\n");
    if (!options_.load.chart.empty() && !report_["runs"].empty()) draw();
    if (is_interrupted()) return interrupted_status();
    return has_failed_ ? kRefused : 0;
  }

 private:
  void draw() const {
    const std::string svg = load_chart(report_);
    core::write_file_atomically(options_.load.chart, svg);
  }

  std::string head(const std::string& model) const {
    const int64_t shared = options_.load.asked.shared_words;
    return core::join("model ", core::printable(model), ": prompts of ", options_.prompt_tokens,
                      " words", shared > 0 ? core::join(", the first ", shared, " shared") : "",
                      "; ", options_.new_tokens, " tokens an answer; seed ",
                      options_.load.asked.seed, "\n");
  }

  const BenchOptions& options_;
  json report_;
  bool has_failed_ = false;
};

}  // namespace

int run_bench_load(const BenchOptions& options) {
  watch_interrupt();
  serve::LoadOptions asked = options.load.asked;
  asked.prompt_words = options.prompt_tokens;
  asked.new_tokens = options.new_tokens;
  if (!options.load.api_key_file.empty()) asked.api_key = read_keys(options.load.api_key_file)[0];
  if (!options.load.chart.empty()) {
    check_new_file(options.load.chart, options.load.force,
                   {options.load.api_key_file, asked.trusted_file});
  }
  Measurements measurements(options);
  const auto measure = [&] {
    if (is_interrupted()) return;
    measurements.add(asked, serve::run_load(asked, [] { return is_interrupted(); }));
    // Other prompts: the server may remember these.
    ++asked.seed;
  };
  for (const double rate : options.load.rates) {
    asked.rate = rate;
    measure();
  }
  if (options.load.rates.empty()) {
    for (const int64_t clients : options.load.clients) {
      asked.num_clients = clients;
      measure();
    }
  }
  return measurements.finish();
}

}  // namespace weft::cli
