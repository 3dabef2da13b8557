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
  std::sort(seconds.begin(), seconds.end());
  if (seconds.empty()) seconds.push_back(0);
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
  char line[120];
  std::snprintf(line, sizeof line, "  %-18s p50 %9.1f  p90 %9.1f  p99 %9.1f\n", title,
                values["p50"].get<double>(), values["p90"].get<double>(),
                values["p99"].get<double>());
  return line;
}

}  // namespace

json load_report(const LoadResult& result, const LoadLimits& limits) {
  std::vector<double> first, between;
  int64_t tokens = 0, kept = 0;
  for (const LoadAnswer& answer : result.answers) {
    const auto& seconds = answer.piece_seconds;
    tokens += answer.num_tokens;
    kept += keeps(answer, limits) ? 1 : 0;
    first.push_back(seconds.front());
    for (size_t i = 1; i < seconds.size(); ++i) between.push_back(seconds[i] - seconds[i - 1]);
  }
  const double seconds = std::max(result.seconds, 1e-9);
  json report = {{"answers", result.answers.size()},
                 {"failed", result.num_failed},
                 {"tokens", tokens},
                 {"seconds", result.seconds},
                 {"tokens_per_s", static_cast<double>(tokens) / seconds},
                 {"first_token_ms", percentiles(std::move(first))},
                 {"between_tokens_ms", percentiles(std::move(between))}};
  if (!limits.first_token && !limits.between_tokens) return report;
  json goodput = {{"answers", kept}, {"answers_per_s", static_cast<double>(kept) / seconds}};
  if (limits.first_token) goodput["first_token_limit_ms"] = *limits.first_token;
  if (limits.between_tokens) goodput["between_tokens_limit_ms"] = *limits.between_tokens;
  report["goodput"] = goodput;
  return report;
}

std::string load_text(const std::string& title, const json& report) {
  char line[160];
  std::snprintf(line, sizeof line, ": %lld answers, %lld tokens in %.1f s: %.1f tokens/s\n",
                report["answers"].get<long long>(), report["tokens"].get<long long>(),
                report["seconds"].get<double>(), report["tokens_per_s"].get<double>());
  std::string text = title + line + percentile_text("first token ms", report["first_token_ms"]) +
                     percentile_text("between tokens ms", report["between_tokens_ms"]);
  if (!report.contains("goodput")) return text;
  const json& goodput = report["goodput"];
  std::snprintf(line, sizeof line, "  goodput            %.2f answers/s, %lld within",
                goodput["answers_per_s"].get<double>(), goodput["answers"].get<long long>());
  text += line;
  const auto add_limit = [&](const char* name, const char* words) {
    if (goodput.contains(name)) {
      text += core::join(" ", goodput[name].get<double>(), " ms ", words);
    }
  };
  add_limit("first_token_limit_ms", "to the first token");
  add_limit("between_tokens_limit_ms", "between tokens");
  return text + "\n";
}

}  // namespace weft::serve
