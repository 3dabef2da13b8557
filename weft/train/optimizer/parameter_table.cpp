#include "weft/train/optimizer/parameter_table.h"

#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/error.h"
#include "weft/train/gather_texts.h"

namespace weft::train {

ParameterTable::ParameterTable(const std::vector<OwnedSlice>& slices, const dist::Group& group) {
  nlohmann::json mine = nlohmann::json::object();
  for (const OwnedSlice& owned : slices) mine[owned.slice.name] = owned.slice.sizes;
  std::map<std::string, std::vector<int64_t>> all;
  for (const std::string& text : gather_texts(group, mine.dump())) {
    const auto theirs = nlohmann::json::parse(text);
    for (const auto& [name, value] : theirs.items()) {
      const auto sizes = value.get<std::vector<int64_t>>();
      const auto [place, is_new] = all.emplace(name, sizes);
      core::check<core::ShapeError>(is_new || place->second == sizes, "train.optimizer: parameter ",
                                    core::quote(name), ": sizes ", core::list_text(place->second),
                                    " and ", core::list_text(sizes), " on different ranks");
    }
  }
  for (auto& [name, sizes] : all) {
    by_name_.emplace(name, sizes_.size());
    sizes_.push_back(std::move(sizes));
  }
}

std::vector<SliceRun> counted_runs(const Slice& slice) {
  if (!slice.cut) return slice.model_rank == 0 ? slice_runs(slice) : std::vector<SliceRun>();
  std::vector<SliceRun> runs = slice_runs(slice);
  if (!slice.cut->overlaps()) return runs;
  for (int64_t rank = 0; rank < slice.model_rank; ++rank) {
    Slice theirs = slice;
    theirs.model_rank = rank;
    theirs.elements = {0, shard_elements(theirs)};
    take_runs(runs, slice_runs(theirs));
  }
  return runs;
}

}  // namespace weft::train
