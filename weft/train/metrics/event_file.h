#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/files/file.h"

namespace weft::train {

/// Numbers of one step by tag, e.g. {"train/loss", 3.2}.
using Scalars = std::vector<std::pair<std::string, double>>;

/// TensorBoard's `Event` messages (tensorflow/core/util/event.proto) in protobuf's wire format.
/// Wall times are seconds since 1970.
std::string encode_version_event(double wall_time);
/// The scalars of a step.
std::string encode_scalars_event(double wall_time, int64_t step, const Scalars& scalars);
/// A run begins again at this step: readers forget what they have of it and later ones.
std::string encode_start_event(double wall_time, int64_t step);

/// `message` as a record of a TFRecord file: length, masked CRC-32C of it, message, masked CRC-32C
/// of that (https://www.tensorflow.org/tutorials/load_data/tfrecord).
std::string frame_record(const std::string& message);

/// A TensorBoard event file of scalars. Several in a folder are read as one run, so each start of a
/// run writes one of its own. For one rank of a run.
class EventFile {
 public:
  /// Makes a new file events.out.tfevents.* in `folder`, which must exist. `resumed_step` is the
  /// last step that was kept, 0 for a new run. Throws IoError.
  EventFile(const std::string& folder, int64_t resumed_step);

  const std::string& path() const { return path_; }
  /// Appends the scalars of a step, with the time of now. Throws IoError.
  void append(int64_t step, const Scalars& scalars);

 private:
  void write(const std::string& bytes);

  std::string path_;
  core::FileDescriptor fd_;
};

}  // namespace weft::train
