#include "weft/train/metrics/metrics_file.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"

namespace weft::train {
namespace {

using core::Json;

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double to_number(const Json& value, const std::string& where) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : core::to_double(value, where);
}

std::optional<double> find_number(const Json& json, const char* key, const std::string& where) {
  const Json* value = core::find(json, key, where);
  if (value == nullptr) return std::nullopt;
  return to_number(*value, where + ": " + key);
}

double require_number(const Json& json, const char* key, const std::string& where) {
  return to_number(core::require(json, key, where), where + ": " + key);
}

int64_t require_whole(const Json& json, const char* key, const std::string& where) {
  return core::to_int64(core::require(json, key, where), where + ": " + key);
}

// Calls `use` with each whole line, its newline included, and what it says.
void for_each_line(const std::string& path, const std::string& text,
                   const std::function<void(std::string_view, const StepMetrics&)>& use) {
  size_t start = 0;
  for (int64_t number = 1; start < text.size(); ++number) {
    const size_t end = text.find('\n', start);
    if (end == std::string::npos) return;
    const std::string_view line(text.data() + start, end + 1 - start);
    const std::string where = core::join(path, ":", number);
    use(line, metrics_from_json(core::parse_json(line, where), where));
    start = end + 1;
  }
}

// Leaves only the lines of steps up to `last_step` in the file, if there is one. Returns its path.
const std::string& with_kept_lines(const std::string& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return path;
  const std::string text = core::read_text_file(path, kMaxBytes);
  std::string kept;
  // Every line is read, also where none stays: a file of something else is not replaced.
  for_each_line(path, text, [&](std::string_view line, const StepMetrics& metrics) {
    if (metrics.step <= last_step) kept += line;
  });
  if (kept == text) return path;
  core::write_file_atomically(path, kept);
  return path;
}

}  // namespace

Json metrics_to_json(const StepMetrics& metrics) {
  Json json = {{"step", metrics.step},
               {"loss", number(metrics.loss)},
               {"grad_norm", number(metrics.grad_norm)},
               {"lr", number(metrics.lr)},
               {"tokens", metrics.tokens},
               {"tokens_per_s", number(metrics.tokens_per_s)},
               {"seconds", number(metrics.seconds)},
               {"rss_bytes", metrics.rss_bytes}};
  if (metrics.mfu) json["mfu"] = number(*metrics.mfu);
  if (metrics.eval_loss) json["eval_loss"] = number(*metrics.eval_loss);
  return json;
}

StepMetrics metrics_from_json(const Json& json, const std::string& where) {
  StepMetrics metrics;
  metrics.step = require_whole(json, "step", where);
  metrics.loss = require_number(json, "loss", where);
  metrics.grad_norm = require_number(json, "grad_norm", where);
  metrics.lr = require_number(json, "lr", where);
  metrics.tokens = require_whole(json, "tokens", where);
  metrics.tokens_per_s = require_number(json, "tokens_per_s", where);
  metrics.mfu = find_number(json, "mfu", where);
  metrics.seconds = require_number(json, "seconds", where);
  metrics.rss_bytes = require_whole(json, "rss_bytes", where);
  metrics.eval_loss = find_number(json, "eval_loss", where);
  return metrics;
}

MetricsFile::MetricsFile(const std::string& path, int64_t resumed_step)
    : file_(with_kept_lines(path, resumed_step)) {}

void MetricsFile::append(const StepMetrics& metrics) {
  file_.append(core::dump_json(metrics_to_json(metrics)) + "\n");
}

std::vector<StepMetrics> read_metrics(const std::string& path) {
  std::vector<StepMetrics> all;
  for_each_line(path, core::read_text_file(path, kMaxBytes),
                [&](std::string_view, const StepMetrics& metrics) { all.push_back(metrics); });
  return all;
}

}  // namespace weft::train
