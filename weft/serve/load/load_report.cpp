#include "weft/serve/load/load_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "weft/core/error.h"

namespace weft::serve {
namespace {

using nlohmann::json;

constexpr double kMilli = 1000;

json percentiles(std::vector<double> seconds) {
  if (seconds.empty()) return nullptr;
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](size_t percent) {
    return kMilli * seconds[std::min(seconds.size() - 1, seconds.size() * percent / 100)];
  };
  return {{"p50", at(50)}, {"p90", at(90)}, {"p99", at(99)}};
}

// Of an answer with one piece nothing lies between.
double mean_between(const LoadAnswer& answer) {
  const auto& seconds = answer.piece_seconds;
  if (seconds.size() < 2) return 0;
  return kMilli * (seconds.back() - seconds.front()) / static_cast<double>(seconds.size() - 1);
}

bool keeps(const LoadAnswer& answer, const LoadLimits& limits) {
  const bool is_soon =
      !limits.first_token || kMilli * answer.piece_seconds.front() <= *limits.first_token;
  return is_soon && (!limits.between_tokens || mean_between(answer) <= *limits.between_tokens);
}

std::string percentile_text(const char* title, const json& values) {
  if (values.is_null()) return "";
  char line[120];
  std::snprintf(line, sizeof line, "  %-18s p50 %9.1f  p90 %9.1f  p99 %9.1f\n", title,
                values["p50"].get<double>(), values["p90"].get<double>(),
                values["p99"].get<double>());
  return line;
}

std::string goodput_text(const json& goodput) {
  char line[160];
  std::snprintf(line, sizeof line, "  goodput            %.2f answers/s: %lld with",
                goodput["answers_per_s"].get<double>(), goodput["answers"].get<long long>());
  std::string text = line;
  const char* before = "";
  const auto add_limit = [&](const char* name, const char* words) {
    if (!goodput.contains(name)) return;
    text += core::join(before, " at most ", goodput[name].get<double>(), " ms ", words);
    before = " and";
  };
  add_limit("first_token_limit_ms", "to the first token");
  add_limit("between_tokens_limit_ms", "between tokens");
  return text + "\n";
}

}  // namespace

json load_report(const LoadResult& result, const LoadLimits& limits) {
  std::vector<double> first, between;
  int64_t tokens = 0, prompt_tokens = 0, kept = 0;
  for (const LoadAnswer& answer : result.answers) {
    const auto& seconds = answer.piece_seconds;
    tokens += answer.num_tokens;
    prompt_tokens += answer.num_prompt_tokens;
    kept += keeps(answer, limits) ? 1 : 0;
    first.push_back(seconds.front());
    for (size_t i = 1; i < seconds.size(); ++i) between.push_back(seconds[i] - seconds[i - 1]);
  }
  const double seconds = std::max(result.seconds, 1e-9);
  json report = {{"answers", result.answers.size()},
                 {"failed", result.num_failed},
                 {"tokens", tokens},
                 {"seconds", result.seconds},
                 {"answers_per_s", static_cast<double>(result.answers.size()) / seconds},
                 {"tokens_per_s", static_cast<double>(tokens) / seconds},
                 {"first_token_ms", percentiles(std::move(first))},
                 {"between_tokens_ms", percentiles(std::move(between))}};
  if (prompt_tokens > 0) report["prompt_tokens"] = prompt_tokens;
  if (!limits.first_token && !limits.between_tokens) return report;
  json goodput = {{"answers", kept}, {"answers_per_s", static_cast<double>(kept) / seconds}};
  if (limits.first_token) goodput["first_token_limit_ms"] = *limits.first_token;
  if (limits.between_tokens) goodput["between_tokens_limit_ms"] = *limits.between_tokens;
  report["goodput"] = goodput;
  return report;
}

std::string load_text(const std::string& title, const json& report) {
  char line[160];
  std::snprintf(line, sizeof line, ": %lld answer%s in %.1f s: %.2f answers/s, %.1f tokens/s\n",
                report["answers"].get<long long>(), report["answers"] == 1 ? "" : "s",
                report["seconds"].get<double>(), report["answers_per_s"].get<double>(),
                report["tokens_per_s"].get<double>());
  std::string text = title + line;
  text += core::join("  tokens             ", report["tokens"].get<int64_t>(), " in answers");
  if (report.contains("prompt_tokens")) {
    text += core::join(", ", report["prompt_tokens"].get<int64_t>(), " in prompts");
  }
  text += "\n" + percentile_text("first token ms", report["first_token_ms"]) +
          percentile_text("between tokens ms", report["between_tokens_ms"]);
  return report.contains("goodput") ? text + goodput_text(report["goodput"]) : text;
}

}  // namespace weft::serve
