#include "weft/io/shard_folder.h"

#include <cstdio>

#include "weft/core/error.h"
#include "weft/io/shard_info/recut.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/io/views/read_view.h"

namespace weft::io {
namespace {

using TextMetadata = std::map<std::string, std::string>;

// What is written under one name.
struct Piece {
  std::string name;
  const ShardRecipe* recipe = nullptr;
};

// The pieces of each file.
using FilePieces = std::vector<std::vector<Piece>>;

FilePieces pieces_of_ranks(const ShardPlan& plan) {
  FilePieces files(static_cast<size_t>(plan.num_ranks()));
  for (const PlannedParam& param : plan.params()) {
    if (param.recipes.size() == 1) {
      files[0].push_back({param.name, &param.recipes[0]});
      continue;
    }
    for (size_t rank = 0; rank < files.size(); ++rank) {
      files[rank].push_back({core::join(param.name, "_shard-", rank + 1, "-of-", files.size()),
                             &param.recipes[rank]});
    }
  }
  return files;
}

// What the source says about itself, but not how it was cut.
TextMetadata kept_metadata(const TensorFile& file) {
  TextMetadata kept;
  for (const auto& [key, value] : file.metadata()) {
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr && !key.starts_with("weft.")) kept[key] = *text;
  }
  return kept;
}

// Packed values are whole words in a file.
TensorSpec spec_of(const Piece& piece) {
  const View& view = piece.recipe->result;
  TensorSpec spec{piece.name, view.dtype(), view.shape()};
  const Packing packing = view.packing();
  const int64_t word = info(view.dtype()).block_bytes;
  if (packing.unit_elements == 1) return spec;
  const int64_t row_bytes = spec.shape.back() / packing.unit_elements * packing.unit_bytes();
  core::check<core::ConfigError>(
      row_bytes % word == 0, "io.write_shards: ", core::quote(piece.name), ": rows of ", row_bytes,
      " bytes are no whole words of ", word, "; cut it for fewer ranks");
  spec.shape.back() = row_bytes / word;
  return spec;
}

std::string rank_file_name(size_t rank, size_t num_ranks) {
  char name[80];
  std::snprintf(name, sizeof name, "model-rank-%05zu-of-%05zu.safetensors", rank + 1, num_ranks);
  return name;
}

std::vector<OutputFile> output_files(const FilePieces& pieces, const TextMetadata& metadata,
                                     const std::string& rules) {
  std::vector<OutputFile> files;
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    OutputFile& file = files.emplace_back();
    file.name = rank_file_name(rank, pieces.size());
    for (const Piece& piece : pieces[rank]) file.tensors.push_back(spec_of(piece));
    file.metadata = metadata;
    file.metadata[kWorldKey] = std::to_string(pieces.size());
    file.metadata[kRankKey] = std::to_string(rank);
    file.metadata[kShardInfoKey] = rules;
  }
  return files;
}

std::vector<OutputFile> whole_files(const std::vector<Piece>& pieces, const TextMetadata& metadata,
                                    uint64_t max_file_bytes) {
  std::vector<TensorSpec> specs;
  for (const Piece& piece : pieces) specs.push_back(spec_of(piece));
  return spread_over_files(specs, max_file_bytes, metadata);
}

}  // namespace

void write_shards(const TensorFile& file, const ShardInfo& info, const FunctionTable& functions,
                  const ShardFolderOptions& options, const std::string& folder,
                  const WriteProgress& progress) {
  const ShardInfo rules = recut_info(file, info, functions);
  const ShardPlan plan = ShardPlan::make(file, rules, options.num_ranks, functions);
  const FilePieces pieces = pieces_of_ranks(plan);
  const TextMetadata metadata = kept_metadata(file);
  std::vector<OutputFile> files;
  if (options.num_ranks == 1) {
    files = whole_files(pieces[0], metadata, options.max_file_bytes);
  } else {
    files = output_files(pieces, metadata, to_json(cut_rules(file, rules, functions)));
  }
  uint64_t total = 0;
  uint64_t done = 0;
  for (const auto& list : pieces) {
    for (const Piece& piece : list) total += piece.recipe->result.num_bytes();
  }
  TensorFolderWriter writer(folder, std::move(files), TensorFolderWriter::Role::kLaysOut);
  for (const auto& list : pieces) {
    for (const Piece& piece : list) {
      std::vector<std::byte> bytes(piece.recipe->result.num_bytes());
      read_shard(file, *piece.recipe, bytes);
      writer.write(piece.name, bytes);
      done += bytes.size();
      progress(done, total);
    }
  }
  writer.sync();
  writer.verify();
}

}  // namespace weft::io
