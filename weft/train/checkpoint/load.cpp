#include "weft/train/checkpoint/load.h"

#include <ATen/ATen.h>

#include <span>

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

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& folder, const std::vector<StateTensor>& wanted,
                                 bool check_hashes, const dist::Group& group) {
  LoadedCheckpoint loaded;
  dist::run_together(group, [&] {
    CheckpointReader reader(folder);
    const auto step = static_cast<size_t>(group.size());
    for (size_t i = static_cast<size_t>(group.rank()); i < reader.manifest().files.size();
         i += step) {
      reader.check_file(i, check_hashes);
    }
    for (const StateTensor& each : wanted) fill(reader, each);
    loaded = {reader.manifest().step, reader.manifest().trainer};
  });
  return loaded;
}

}  // namespace weft::train
