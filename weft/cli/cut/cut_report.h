#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/cli/options.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/tensor_file.h"

namespace weft::cli {

/// What reading each rank's part of a plan will cost, counted without reading: "hash" and "ranks".
nlohmann::json reads_json(const io::ShardPlan& plan);
/// The same as lines of text.
std::string reads_table(const nlohmann::json& reads);

/// What `weft inspect` prints of tensors that rules cut, rather than a model's own layers: per
/// tensor what every rank gets. Throws as find_info, io::recut_info and io::ShardPlan::make.
std::string cut_report(const io::TensorFile& file, const InspectOptions& options);

}  // namespace weft::cli
