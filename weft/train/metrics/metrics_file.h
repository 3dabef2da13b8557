#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/files/line_file.h"
#include "weft/core/json.h"

namespace weft::train {

/// Name of the file in a run's folder.
inline constexpr char kMetricsName[] = "metrics.jsonl";

/// What is known of one optimizer step: a line of metrics.jsonl.
struct StepMetrics {
  /// From 1.
  int64_t step = 0;
  /// Mean over the step's tokens, in nats.
  double loss = 0;
  /// Norm of the whole gradient, before clipping.
  double grad_norm = 0;
  double lr = 0;
  /// Tokens with a loss, of all ranks and all steps so far.
  int64_t tokens = 0;
  /// Of all ranks.
  double tokens_per_s = 0;
  /// Share of the peak, 0 to 1; none: the peak is not known.
  std::optional<double> mfu;
  /// Wall time of the step.
  double seconds = 0;
  /// Resident memory of the largest rank.
  int64_t rss_bytes = 0;
  /// Mean over the evaluation's tokens, in nats, if there was one after this step.
  std::optional<double> eval_loss;
};

/// The line's object and back. A number that is not finite becomes null, which reads as NaN.
core::Json metrics_to_json(const StepMetrics& metrics);
/// Throws FormatError naming `where`.
StepMetrics metrics_from_json(const core::Json& json, const std::string& where);

/// metrics.jsonl: one JSON object per line and step, appended as steps end. For one rank of a run.
class MetricsFile {
 public:
  /// Opens or makes the file. Of what is there, only the lines of steps up to `resumed_step` stay
  /// (a run that is resumed does the others again; 0: none stay); a last line that a killed process
  /// left unfinished goes, too. That happens in one move: the path always shows the old lines or
  /// the kept ones. Throws IoError, and FormatError naming the line where the file is of something
  /// else, such as documents.
  MetricsFile(const std::string& path, int64_t resumed_step);

  /// Writes a line in one piece. Throws IoError.
  void append(const StepMetrics& metrics);

 private:
  core::LineFile file_;
};

/// All whole lines of the file, in order. Throws FormatError naming the line, IoError.
std::vector<StepMetrics> read_metrics(const std::string& path);

}  // namespace weft::train
