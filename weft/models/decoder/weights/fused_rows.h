#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/shard/split.h"

namespace weft::models {

/// Several weights in one tensor of the file: one after the other by rows, one row of each in turn,
/// or some rows of each in turn.
struct FusedRow {
  std::string_view model;
  std::string_view gguf;
  std::span<const Part> parts;
  bool is_interleaved = false;
  /// Rows stand together by key heads of gated delta nets (RowGroups).
  bool is_grouped = false;
  /// GGUF has them apart, but for old files.
  bool is_apart_in_gguf = false;
  /// Of experts: GGUF that is written has them so, too, and not each part by itself.
  bool is_written_to_gguf = false;
};

/// The tensor in which a family's files store a part together with others; null: it has its own.
const FusedRow* fused_row(const ModelConfig& config, Part part);
/// Whether a family's folders have a part within a tensor of several, fused or stacked.
bool is_joined_in_folders(const ModelConfig& config, Part part);
/// The tensor in which files may have a layer's experts of a part together with others, stacked;
/// null: none has. GGUF's name may be empty.
const FusedRow* fused_experts_row(const ModelConfig& config, Part part);

/// The tensor in which GGUF that is written has a part together with others; null: its own.
const FusedRow* written_gguf_row(const ModelConfig& config, Part part);

/// Where the rows of a part lie in a fused tensor whose parts are one after the other, and how many
/// the tensor has.
struct FusedPlace {
  int64_t first_row = 0;
  int64_t num_rows = 0;
};
/// Of one of the parts of `fused`.
FusedPlace fused_place(const ModelConfig& config, const FusedRow& fused, Part part);

/// Rows in groups, each of the same numbers of rows of several parts; without groups they are in
/// order.
struct RowGroups {
  int64_t num_groups = 0;
  std::vector<int64_t> lengths = {};

  /// Rows of a part that is stored in one piece.
  struct Piece {
    /// In the order part by part, and in the tensor.
    int64_t row = 0;
    int64_t stored_row = 0;
    int64_t length = 0;
  };
  /// Where `rows`, counted part by part, are stored.
  std::vector<Piece> pieces(const shard::Range& rows) const;
};
/// The groups of a fused tensor that has some.
RowGroups row_groups(const ModelConfig& config, const FusedRow& fused);

}  // namespace weft::models
