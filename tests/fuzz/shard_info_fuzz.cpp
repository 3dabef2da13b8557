// shard_info.json in all its forms, planned over a small file.
#include "tests/fuzz/fuzz.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/views/read_view.h"

namespace {

using weft::io::Dtype;

// The tensors that the seeds name.
std::shared_ptr<const weft::io::TensorFile> open_source(const weft::testing::InputFile& file) {
  const std::vector<std::byte> bytes(96);
  const auto tensor = [&](const char* name, Dtype dtype, std::vector<int64_t> shape) {
    int64_t size = weft::io::info(dtype).block_bytes;
    for (const int64_t dim : shape) size *= dim;
    return weft::io::TensorToWrite{name, dtype, std::move(shape),
                                   std::span(bytes).first(static_cast<size_t>(size))};
  };
  const std::string path = file.folder() + "/m.safetensors";
  weft::io::write_safetensors(
      path,
      {tensor("l.0.q", Dtype::kF16, {8, 6}), tensor("l.0.k", Dtype::kF16, {4, 6}),
       tensor("l.1.q", Dtype::kF16, {8, 6}), tensor("l.1.k", Dtype::kF16, {4, 6}),
       tensor("n", Dtype::kF32, {6}), tensor("p_shard-1-of-2", Dtype::kU8, {2, 2}),
       tensor("p_shard-2-of-2", Dtype::kU8, {2, 2})},
      {});
  return weft::io::TensorFile::open(path);
}

void read_shards(const weft::io::TensorFile& source, const weft::io::ShardPlan& plan) {
  constexpr uint64_t kMaxBytes = 1 << 16, kMaxRuns = 1 << 12;
  for (const weft::io::PlannedParam& param : plan.params()) {
    for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
      const weft::io::ShardRecipe& recipe = param.of(rank);
      const bool is_small =
          recipe.result.num_bytes() <= kMaxBytes && recipe.file_view().max_runs() <= kMaxRuns;
      if (!is_small) continue;
      std::vector<std::byte> bytes(recipe.result.num_bytes());
      weft::io::read_shard(source, recipe, bytes);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  static const testing::InputFile file("unused");
  static const auto source = open_source(file);
  static const io::FunctionTable functions = [] {
    io::FunctionTable table;
    table.add_alias("shard_n", "weft.stack_shards", {0, 2});
    return table;
  }();
  testing::run_input([&] {
    const auto info =
        io::ShardInfo::parse({reinterpret_cast<const char*>(data), size}, "shard_info");
    for (const int64_t num_ranks : {2, 3}) {
      testing::run_input(
          [&] { read_shards(*source, io::ShardPlan::make(*source, info, num_ranks, functions)); });
    }
    const std::string text = to_json(info);
    testing::expect(to_json(io::ShardInfo::parse(text, "shard_info")) == text,
                    "weft's form reads back as it was written");
  });
  return 0;
}
