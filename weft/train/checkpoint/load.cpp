#include "weft/train/checkpoint/load.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <span>
#include <string>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/train/checkpoint/reader.h"

namespace weft::train {
namespace {

void fill(CheckpointReader& reader, const StateTensor& wanted) {
  const at::Tensor& to = wanted.values;
  const bool is_direct = to.is_cpu() && to.is_contiguous();
  const at::Tensor host = is_direct ? to : at::empty(to.sizes(), at::kFloat);
  const std::span<float> values(host.mutable_data_ptr<float>(), static_cast<size_t>(host.numel()));
  if (wanted.is_whole) {
    reader.read_whole_state(wanted.state, wanted.slice.name, values);
  } else {
    reader.read(wanted.state, wanted.slice, values);
  }
  if (!is_direct) to.copy_(host);
}

// What no rank wants would be lost at the next save, and the run go on with less than it had.
void check_all_wanted(const Manifest& manifest, const std::string& folder,
                      const std::vector<StateTensor>& wanted, const dist::Group& group) {
  group.check_agreement("parameters of the checkpoint", std::to_string(manifest.parameters.size()));
  std::map<std::string, int64_t> places;
  for (const auto& [name, parameter] : manifest.parameters) {
    places.emplace(name, static_cast<int64_t>(places.size()));
  }
  at::Tensor is_wanted = at::zeros({static_cast<int64_t>(places.size())}, at::kInt);
  for (const StateTensor& each : wanted) {
    const auto found = places.find(each.slice.name);
    if (found != places.end()) is_wanted[found->second] = 1;
  }
  group.all_reduce(is_wanted, dist::ReduceOp::kMax);
  const int64_t others = is_wanted.eq(0).sum().item<int64_t>() - 1;
  for (const auto& [name, place] : places) {
    core::check<core::FormatError>(
        is_wanted[place].item<int>() != 0, folder, ": has ", core::quote(name),
        others > 0 ? core::join(" and ", others, " other parameters") : std::string(),
        ", which the run does not train; resume with the model and targets that were saved, or "
        "begin a new run");
  }
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& folder, const std::vector<StateTensor>& wanted,
                                 bool check_hashes, const dist::Group& group) {
  std::optional<CheckpointReader> reader;
  dist::run_together(group, [&] { reader.emplace(folder); });
  const Manifest& manifest = reader->manifest();
  check_all_wanted(manifest, folder, wanted, group);
  dist::run_together(group, [&] {
    const auto step = static_cast<size_t>(group.size());
    for (auto i = static_cast<size_t>(group.rank()); i < manifest.files.size(); i += step) {
      reader->check_file(i, check_hashes);
    }
    for (const StateTensor& each : wanted) fill(*reader, each);
  });
  return {manifest.step, manifest.trainer};
}

}  // namespace weft::train
