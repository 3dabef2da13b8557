#include "weft/train/optimizer/parameter_table.h"

#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/train/counted_once.h"
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
  std::vector<SliceRun> runs;
  for (const shard::Range& range : counted_once(slice)) {
    Slice part = slice;
    part.elements = range;
    for (SliceRun run : slice_runs(part)) {
      run.offset += range.start - slice.elements.start;
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace weft::train
