#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// What the name of a tensor that holds one rank's piece says.
struct PieceName {
  std::string base;
  /// From 0.
  int64_t index = 0;
  /// Not in MLC's names.
  std::optional<int64_t> count;
};

/// Reads TVM's "NAME_shard-1-of-2" (from 1) and MLC's "NAME_shard-0" (from 0). Nothing if the end
/// isn't numbers like these: then it is a plain name. Throws FormatError for a piece that can't be:
/// 0 of 2, 3 of 2, more digits than 63 bits hold.
std::optional<PieceName> parse_piece_name(const std::string& name);

/// Rules that give each rank its piece (shard_pieces) of every parameter that `file` keeps in
/// pieces; what it keeps whole every rank gets. With `dims` (from a parameter's name to the dim
/// that it was cut along) those parameters are cut again instead, for any number of ranks. Throws
/// FormatError if a piece is missing or stands twice, or counts differ.
ShardInfo pieces_info(const TensorFile& file, const std::map<std::string, int64_t>& dims = {});

}  // namespace weft::io
