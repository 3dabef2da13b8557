#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/shard/layout.h"
#include "weft/train/slice.h"

namespace weft::train {

/// The name of the file that says what is in a checkpoint's folder; it is written last.
inline constexpr const char* kManifestName = "manifest.json";

/// A whole parameter and how the model axis cut it when it was saved.
struct SavedParameter {
  std::vector<int64_t> sizes;
  std::optional<shard::Layout> cut;
};

/// Elements of a parameter that a file has.
struct SavedSlice {
  std::string name;
  int64_t model_rank = 0;
  /// Of the flattened shard of that rank.
  shard::Range elements;
  /// Tensors "name/state" with a value for each of the elements, float32.
  std::vector<std::string> states;
  /// Tensors "name/state" of the whole parameter, of any length, float32.
  std::vector<std::string> whole_states;
};

/// One rank's file.
struct SavedFile {
  std::string name;
  uint64_t num_bytes = 0;
  /// core::hash_bytes of all of it.
  uint64_t hash = 0;
  std::vector<SavedSlice> slices;
};

/// What a checkpoint holds.
struct Manifest {
  int64_t step = 0;
  /// What the trainer keeps beside tensors, as the text of one JSON value.
  std::string trainer = "null";
  std::map<std::string, SavedParameter> parameters;
  std::vector<SavedFile> files;

  /// A saved slice as one of the whole.
  Slice slice(const SavedSlice& saved) const;
};

/// JSON with a hash of all that it says, ending in a newline.
std::string to_text(const Manifest& manifest);

/// The inverse, strict: unknown formats and versions, a text other than the one that was saved,
/// slices outside of their wholes, names that leave the folder are refused. `path` begins messages.
/// Throws FormatError.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// That of the checkpoint in `folder`. Throws FormatError, also if there is none, or IoError.
Manifest read_manifest(const std::string& folder);

/// Adds the files and parameters of another rank. Throws InternalError if it describes a parameter
/// otherwise.
void add_part(Manifest& manifest, const Manifest& part);

}  // namespace weft::train
