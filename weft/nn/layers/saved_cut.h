#pragma once

#include <torch/nn/module.h>

#include <optional>

#include "weft/dist/group.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// What torch::save writes beside the tensors of a layer that is cut, and torch::load compares:
/// torch itself takes tensors of any shape from a file, and another rank's part has the same.

/// One rank's part of a whole, as it is written down.
struct SavedCut {
  shard::Layout layout;
  dist::Group group;
};

/// Writes which part of the whole this rank holds.
void save_cut(torch::serialize::OutputArchive& archive, const SavedCut& cut);

/// Throws FormatError, beginning with `where`, unless the archive is of this rank's part of this
/// cut, or of a whole layer if `cut` is none. Not collective.
void check_saved_cut(torch::serialize::InputArchive& archive, const std::optional<SavedCut>& cut,
                     const char* where);

/// Throws FormatError, beginning with `where`, unless the archive has each parameter and buffer of
/// `module` itself, with its shape and dtype.
void check_saved_tensors(torch::serialize::InputArchive& archive, const torch::nn::Module& module,
                         const char* where);

}  // namespace weft::nn
