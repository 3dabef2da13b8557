#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/train/checkpoint/slices.h"
#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/train/checkpoint/manifest.h"

namespace weft::train::testing {

/// Writes a checkpoint of one parameter "w" whose element i is i, each slice in a file of its own.
inline Manifest write_checkpoint(const weft::testing::TempDir& dir,
                                 const std::vector<Slice>& slices) {
  Manifest manifest;
  manifest.step = 12;
  for (const Slice& slice : slices) {
    std::vector<float> values;
    for (const int64_t place : places_in_whole(slice)) values.push_back(static_cast<float>(place));
    const std::string name = core::join("rank-", manifest.files.size());
    io::write_safetensors(
        dir.at(name),
        {{"w/master", io::Dtype::kF32, {slice.elements.length}, std::as_bytes(std::span(values))}},
        {});
    const std::string bytes = dir.read(name);
    manifest.parameters["w"] = {slice.sizes, slice.cut};
    manifest.files.push_back({name,
                              bytes.size(),
                              core::hash_bytes(std::as_bytes(std::span(bytes))),
                              {{"w", slice.model_rank, slice.elements, {"master"}, {}}}});
  }
  dir.write(kManifestName, to_text(manifest));
  return manifest;
}

}  // namespace weft::train::testing
