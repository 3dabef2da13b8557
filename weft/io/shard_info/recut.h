#pragma once

#include <cstdint>
#include <optional>

#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/shard/layout.h"

namespace weft::io {

/// What a pre-sharded checkpoint says about itself in its files' metadata.
struct CutCheckpoint {
  int64_t num_ranks = 1;
  /// One rule per parameter that is in pieces: the whole's shape and type, and the function that
  /// cut it. Names are literal.
  ShardInfo info;
};

/// Keys of a file's metadata: the number of ranks, the file's own rank, and the rules.
inline constexpr char kWorldKey[] = "weft.world";
inline constexpr char kRankKey[] = "weft.rank";
inline constexpr char kShardInfoKey[] = "weft.shard_info";

/// Reads these keys of `file`; nothing if it has none. Throws FormatError.
std::optional<CutCheckpoint> read_cut_checkpoint(const TensorFile& file);

/// Rules that cut `file` for any number of ranks as `info` says, whether it holds its parameters
/// whole or in pieces (parse_piece_name): pieces are joined first, by the ranges that the rule's
/// shard function gave each rank, of replicated elements the first rank's copy. All on views, so no
/// whole is ever built. For parameters in pieces only the last step of their rule counts, which
/// must be a shard function along one dim, and the whole's shape where it is not the sum of the
/// pieces (replicated heads). Throws FormatError, ConfigError, ShapeError that name the parameter.
ShardInfo recut_info(const TensorFile& file, const ShardInfo& info, const FunctionTable& functions);

/// What a checkpoint of `file` that `info` cut has to say about itself to be cut again:
/// CutCheckpoint::info. Parameters that no single dim was cut of, by a shard function or by TVM's
/// way in one step, are left out: they can't be joined again.
ShardInfo cut_rules(const TensorFile& file, const ShardInfo& info, const FunctionTable& functions);

}  // namespace weft::io
