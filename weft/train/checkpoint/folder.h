#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::train {

/// RUN/checkpoints/step-000100: where a run keeps the checkpoint of a step.
std::string checkpoint_path(const std::string& run, int64_t step);

/// Steps of the complete checkpoints of a run, ascending; none if it has none. Folders that were
/// not finished have other names. Throws IoError.
std::vector<int64_t> list_checkpoints(const std::string& run);

/// The newest complete checkpoint of a run. Throws IoError.
std::optional<std::string> find_latest(const std::string& run);

/// Makes RUN/checkpoints and removes what killed runs left half written or half removed. By one
/// rank, while no other saves. Throws IoError.
void prepare_checkpoints(const std::string& run);

/// Removes the oldest complete checkpoints beyond `keep`, at least 1; one that is being removed is
/// not complete any more. Throws IoError.
void remove_oldest(const std::string& run, int64_t keep);

/// Renames the complete checkpoints after `step` to "left-step-000100", so that a run that goes on
/// from `step` neither takes nor removes them; returns the new names. By one rank. Throws IoError.
std::vector<std::string> set_aside_newer(const std::string& run, int64_t step);

}  // namespace weft::train
