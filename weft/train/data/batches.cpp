#include "weft/train/data/batches.h"

#include <algorithm>
#include <span>

#include "weft/core/error.h"

namespace weft::train {

Batches::Batches(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range,
                 uint64_t seed)
    : packer_(std::move(store), options, range), order_(packer_.num_sequences(), seed) {}

Batches::Batches(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range)
    : packer_(std::move(store), options, range), order_(packer_.num_sequences(), 0, false) {}

void Batches::fill(int64_t first, int64_t count, Rows& out) const {
  core::check<core::ConfigError>(first >= 0 && count >= 0,
                                 "train.Batches: expected samples from 0, got ", count, " from ",
                                 first);
  out.count = count;
  out.length = packer_.length();
  const auto length = static_cast<size_t>(out.length);
  for (auto* values : {&out.ids, &out.targets, &out.documents, &out.positions}) {
    values->resize(static_cast<size_t>(count) * length);
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto row = [&](std::vector<int64_t>& values) {
      return std::span(values).subspan(static_cast<size_t>(i) * length, length);
    };
    packer_.fill(order_[first + i],
                 {row(out.ids), row(out.targets), row(out.documents), row(out.positions)});
  }
  out.num_targets = static_cast<int64_t>(out.targets.size()) -
                    std::count(out.targets.begin(), out.targets.end(), kIgnoredTarget);
}

}  // namespace weft::train
