#pragma once

#include <ATen/ATen.h>

#include <string>

#include "weft/dist/group.h"

namespace weft::test {

/// The first rank's `folder`, on all ranks, each of which has temporary folders of its own.
/// Collective.
inline std::string shared_folder(const std::string& folder, const dist::Group& group) {
  constexpr int64_t kMostCharacters = 256;
  at::Tensor letters = at::zeros({kMostCharacters}, at::kLong);
  for (size_t i = 0; i < folder.size(); ++i) letters[static_cast<int64_t>(i)] = folder[i];
  group.broadcast(letters, 0);
  std::string path;
  for (int64_t i = 0; letters[i].item<int64_t>() != 0; ++i) {
    path += static_cast<char>(letters[i].item<int64_t>());
  }
  return path;
}

}  // namespace weft::test
