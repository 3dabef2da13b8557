#include "weft/models/convert/row_reader.h"

#include <algorithm>
#include <utility>

#include "weft/models/load/weight_source.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::models {
namespace {

// Numbers of a run of rows, so that it takes little memory as float32.
constexpr int64_t kRunNumbers = int64_t{4} << 20;

}  // namespace

int64_t RowReader::num_rows(const PlannedWeight& weight) {
  return std::max<int64_t>(weight.rule.out, 1);
}

bool RowReader::has_single_rows(const PlannedWeight& weight) {
  const auto& parts = weight.format.parts;
  return std::all_of(parts.begin(), parts.end(), [](const io::MatrixPart& part) {
    return part.out_dim == 0 && part.per_out == 1;
  });
}

std::vector<shard::Range> RowReader::runs(const PlannedWeight& weight, const shard::Range& rows,
                                          int64_t unit) {
  if (!has_single_rows(weight)) return {rows};
  const int64_t step = std::max<int64_t>(1, kRunNumbers / weight.rule.in / unit) * unit;
  std::vector<shard::Range> runs;
  for (int64_t start = rows.start; start < rows.end(); start += step) {
    runs.push_back({start, std::min(step, rows.end() - start)});
  }
  return runs;
}

io::LoadedMatrix RowReader::rows(const PlannedWeight& weight, const shard::Range& rows,
                                 at::ScalarType dtype) const {
  std::vector<io::ShardRecipe> recipes;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    io::ShardRecipe recipe = plan_.recipe(weight, i, 0);
    if (rows.length < num_rows(weight)) {
      recipe.result = recipe.result.narrow(0, rows.start, rows.length);
    }
    recipes.push_back(std::move(recipe));
  }
  io::MatrixSlice wanted = plan_.stored_slice(weight, 0);
  wanted.rows = {{0, rows.length}};
  io::MatrixSource source{weight.format, {}, wanted};
  for (const io::ShardRecipe& recipe : recipes) source.parts.push_back(&recipe);
  return io::load_matrix(file_, source, dtype);
}

at::Tensor RowReader::plain_rows(const PlannedWeight& weight, const shard::Range& range,
                                 at::ScalarType dtype) const {
  io::LoadedMatrix loaded = rows(weight, range, dtype);
  if (auto* dense = std::get_if<at::Tensor>(&loaded)) return *dense;
  return quant::dequantize(std::get<quant::QuantizedMatrix>(loaded), dtype);
}

at::Tensor RowReader::sampled_rows(const PlannedWeight& weight, int64_t count) const {
  const int64_t all = num_rows(weight), step = std::max<int64_t>(1, all / count);
  std::vector<at::Tensor> parts;
  for (const shard::Range& run : runs(weight, {0, all}, step)) {
    const at::Tensor rows = plain_rows(weight, run, at::kFloat);
    parts.push_back(rows.slice(0, 0, rows.size(0), step).contiguous());
  }
  return at::cat(parts);
}

at::Tensor RowReader::vector(const PlannedWeight& weight, at::ScalarType dtype) const {
  const auto read_as = differs_in_file(weight.rule) ? at::kFloat : dtype;
  const at::Tensor vector = io::load_tensor(file_, plan_.recipe(weight, 0, 0), read_as);
  return from_stored(vector, weight.rule, file_.path());
}

}  // namespace weft::models
