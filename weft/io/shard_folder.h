#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// How write_shards writes.
struct ShardFolderOptions {
  /// Ranks to cut for; 1 gives whole tensors under their own names.
  int64_t num_ranks = 1;
  /// For whole tensors: spread_over_files.
  uint64_t max_file_bytes = uint64_t{5} << 30;
};

/// Sees how many bytes of how many are written.
using WriteProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Writes `file`, whole or pre-sharded, cut for `options.num_ranks` as `info` says to the empty
/// folder `folder`, and verifies what it wrote. Each rank has a file; a piece is
/// "NAME_shard-1-of-4" (TVM's name), and what all ranks hold whole is written once, to the first
/// file, under its own name. The metadata say how it was cut (CutCheckpoint), so that it can be cut
/// again. One rank's piece of one tensor is in memory at a time. Bytes depend on the wholes and the
/// rules alone: cutting for N, then for M, then for N again gives the same files. Throws as
/// ShardPlan::make and recut_info; IoError.
void write_shards(const TensorFile& file, const ShardInfo& info, const FunctionTable& functions,
                  const ShardFolderOptions& options, const std::string& folder,
                  const WriteProgress& progress);

}  // namespace weft::io
