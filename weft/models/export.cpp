#include "weft/models/export.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/run_together.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/export_types.h"
#include "weft/models/load.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/shard/split.h"

namespace weft::models {
namespace {

using core::check;
using core::quote;

// Numbers of a chunk of rows, so that it takes little memory as float32.
constexpr int64_t kChunkNumbers = int64_t{4} << 20;
constexpr int64_t kWordBits = 32;
// The quant groups that MLX has.
constexpr int64_t kMlxGroups[] = {32, 64, 128};

bool is_mlx_group(int64_t size) {
  return std::find(std::begin(kMlxGroups), std::end(kMlxGroups), size) != std::end(kMlxGroups);
}

// How one weight is written.
struct Output {
  const PlannedWeight* weight = nullptr;
  /// None: floating in `dtype`.
  std::optional<quant::Scheme> scheme;
  at::ScalarType dtype = at::kFloat;
  /// From floating numbers, rather than from small ones that are there.
  bool is_quantized_anew = false;

  bool is_affine() const { return scheme && scheme->mode == quant::Mode::kAffine; }
  const WeightRule& rule() const { return weight->rule; }
  int64_t rows() const { return std::max<int64_t>(rule().out, 1); }
};

// Bits of the integers that a block format becomes; 0 for those that MLX has no groups for.
struct BlockForm {
  io::Dtype dtype;
  int64_t bits;
  at::ScalarType scales;
};
constexpr BlockForm kBlockForms[] = {
    {io::Dtype::kQ4_0, 4, at::kHalf}, {io::Dtype::kQ4_1, 4, at::kHalf},
    {io::Dtype::kQ5_0, 5, at::kHalf}, {io::Dtype::kQ5_1, 5, at::kHalf},
    {io::Dtype::kQ8_0, 8, at::kHalf}, {io::Dtype::kQ4K, 4, at::kFloat},
    {io::Dtype::kQ5K, 5, at::kFloat}};
constexpr int64_t kBlockGroup = 32;

class Chooser {
 public:
  Chooser(const LoadPlan& plan, const ExportOptions& options) : plan_(plan), options_(options) {}

  Output choose(const PlannedWeight& weight) const {
    Output output;
    output.weight = &weight;
    const io::Dtype stored = plan_.recipe(weight, 0, 0).result.dtype();
    const bool is_dense = weight.format.kind == io::MatrixKind::kDense;
    const at::ScalarType floating = is_dense ? torch_type(stored) : at::kHalf;
    output.dtype = options_.dtype.value_or(floating);
    if (options_.dtype || weight.rule.is_vector()) return output;
    if (options_.scheme) return quantized(output, weight);
    if (is_dense) return output;
    return as_stored(output, weight, stored);
  }

 private:
  Output quantized(Output output, const PlannedWeight& weight) const {
    if (weight.rule.in % options_.scheme->group_size != 0) return output;
    output.scheme = options_.scheme;
    output.scheme->scale_dtype = output.dtype;
    output.is_quantized_anew = true;
    return output;
  }

  Output as_stored(Output output, const PlannedWeight& weight, io::Dtype stored) const {
    const io::MatrixFormat& format = weight.format;
    if (format.kind == io::MatrixKind::kAffine) {
      const at::ScalarType scales = torch_type(plan_.recipe(weight, 1, 0).result.dtype());
      output.scheme = {quant::Mode::kAffine, format.bits, format.group_size, scales};
    } else if (format.kind == io::MatrixKind::kMicroscaled) {
      output.scheme = quant::parse_scheme(format.text, weight.rule.name);
    } else if (format.kind != io::MatrixKind::kGgufBlocks && is_mlx_group(format.group_size)) {
      // AWQ's and GPTQ's: zero points times scales take more bits than half types have.
      output.scheme = {quant::Mode::kAffine, format.bits, format.group_size, at::kFloat};
    }
    for (const BlockForm& form : kBlockForms) {
      if (form.dtype == stored && format.kind == io::MatrixKind::kGgufBlocks) {
        output.scheme = {quant::Mode::kAffine, form.bits, kBlockGroup, form.scales};
      }
    }
    return output;
  }

  const LoadPlan& plan_;
  const ExportOptions& options_;
};

std::vector<io::TensorSpec> specs_of(const Output& output) {
  const WeightRule& rule = output.rule();
  const io::Dtype dtype = file_type(output.dtype);
  if (rule.is_vector()) return {{rule.name, dtype, {rule.in}}};
  if (!output.scheme) return {{rule.name, dtype, {rule.out, rule.in}}};
  const quant::Scheme& scheme = *output.scheme;
  const io::Dtype scales = output.is_affine() ? file_type(scheme.scale_dtype) : io::Dtype::kU8;
  const int64_t groups = rule.in / scheme.group_size;
  std::vector<io::TensorSpec> specs = {
      {rule.base() + ".weight", io::Dtype::kU32, {rule.out, rule.in * scheme.bits / kWordBits}},
      {rule.base() + ".scales", scales, {rule.out, groups}}};
  if (output.is_affine()) specs.push_back({rule.base() + ".biases", scales, {rule.out, groups}});
  return specs;
}

class Exporter {
 public:
  Exporter(const io::TensorFile& file, const LoadPlan& plan, io::TensorFolderWriter& writer,
           const dist::Group& group)
      : file_(file), plan_(plan), writer_(writer), group_(group) {}

  // This rank's rows. Returns the bytes of the source that all ranks have done by it.
  void write(const Output& output) {
    if (output.rule().is_vector()) {
      if (group_.rank() == 0) write_vector(output);
      return;
    }
    const bool is_by_rows =
        std::all_of(output.weight->format.parts.begin(), output.weight->format.parts.end(),
                    [](const io::MatrixPart& part) { return part.out_dim == 0; });
    if (!is_by_rows) {
      if (group_.rank() == 0) write_rows(output, {0, output.rows()});
      return;
    }
    const shard::Range mine = shard::part(output.rows(), group_.size(), group_.rank());
    const int64_t step = std::max<int64_t>(1, kChunkNumbers / output.rule().in);
    for (int64_t start = mine.start; start < mine.end(); start += step) {
      write_rows(output, {start, std::min(step, mine.end() - start)});
    }
  }

 private:
  void write_vector(const Output& output) {
    const at::Tensor numbers =
        io::load_tensor(file_, plan_.recipe(*output.weight, 0, 0), output.dtype);
    writer_.write(output.rule().name,
                  bytes_of(converted(numbers, output.dtype, output.rule().name)));
  }

  io::LoadedMatrix load_rows(const Output& output, const shard::Range& rows,
                             at::ScalarType dtype) const {
    const PlannedWeight& weight = *output.weight;
    std::vector<io::ShardRecipe> recipes;
    for (size_t i = 0; i < weight.parts.size(); ++i) {
      io::ShardRecipe recipe = plan_.recipe(weight, i, 0);
      if (rows.length < output.rows()) {
        recipe.result = recipe.result.narrow(0, rows.start, rows.length);
      }
      recipes.push_back(std::move(recipe));
    }
    io::MatrixSlice wanted = plan_.slice(weight, 0);
    wanted.rows = {{0, rows.length}};
    io::MatrixSource source{weight.format, {}, wanted};
    for (const io::ShardRecipe& recipe : recipes) source.parts.push_back(&recipe);
    return io::load_matrix(file_, source, dtype);
  }

  at::Tensor dense_rows(const Output& output, const shard::Range& rows,
                        at::ScalarType dtype) const {
    io::LoadedMatrix loaded = load_rows(output, rows, dtype);
    if (auto* dense = std::get_if<at::Tensor>(&loaded)) return *dense;
    return quant::dequantize(std::get<quant::QuantizedMatrix>(loaded), dtype);
  }

  quant::QuantizedMatrix quantized_rows(const Output& output, const shard::Range& rows) const {
    if (output.is_quantized_anew) {
      return quant::quantize(dense_rows(output, rows, at::kFloat), *output.scheme);
    }
    auto matrix = std::get<quant::QuantizedMatrix>(load_rows(output, rows, at::kFloat));
    auto* affine = std::get_if<quant::AffineTensor>(&matrix);
    if (affine != nullptr && affine->is_symmetric()) {
      const auto middle = static_cast<double>(int64_t{1} << (affine->bits - 1));
      affine->offsets = affine->scales.to(at::kFloat) * -middle;
    }
    return matrix;
  }

  void write_rows(const Output& output, const shard::Range& rows) {
    const WeightRule& rule = output.rule();
    if (!output.scheme) {
      const at::Tensor numbers = dense_rows(output, rows, at::kFloat);
      write_at(rule.name, rows, converted(numbers, output.dtype, rule.name));
      return;
    }
    quant::QuantizedMatrix matrix = quantized_rows(output, rows);
    if (const auto* affine = std::get_if<quant::AffineTensor>(&matrix)) {
      write_at(rule.base() + ".weight", rows, affine->packed.contiguous());
      write_numbers(rule.base() + ".scales", rows, affine->scales, *output.scheme);
      write_numbers(rule.base() + ".biases", rows, affine->offsets, *output.scheme);
      return;
    }
    const auto& floats = std::get<quant::MicroscaledTensor>(matrix);
    write_at(rule.base() + ".weight", rows, floats.packed.contiguous());
    write_at(rule.base() + ".scales", rows, floats.scales.contiguous());
  }

  void write_numbers(const std::string& name, const shard::Range& rows, const at::Tensor& part,
                     const quant::Scheme& scheme) {
    write_at(name, rows, converted(part, scheme.scale_dtype, name));
  }

  void write_at(const std::string& name, const shard::Range& rows, const at::Tensor& part) {
    const uint64_t row_bytes = part.nbytes() / static_cast<uint64_t>(rows.length);
    writer_.write(name, row_bytes * static_cast<uint64_t>(rows.start), bytes_of(part));
  }

  const io::TensorFile& file_;
  const LoadPlan& plan_;
  io::TensorFolderWriter& writer_;
  const dist::Group& group_;
};

nlohmann::json form_of(const quant::Scheme& scheme) {
  return {{"group_size", scheme.group_size},
          {"bits", scheme.bits},
          {"mode", quant::mode_info(scheme.mode).name}};
}

// The commonest form for all, and those of other forms by name, as mlx-lm writes it.
nlohmann::json quantization_of(const std::vector<Output>& outputs) {
  std::map<nlohmann::json, size_t> counts;
  for (const Output& output : outputs) {
    if (output.scheme) ++counts[form_of(*output.scheme)];
  }
  if (counts.empty()) return nullptr;
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  nlohmann::json quantization = most->first;
  for (const Output& output : outputs) {
    if (output.scheme && form_of(*output.scheme) != most->first) {
      quantization[output.rule().base()] = form_of(*output.scheme);
    }
  }
  return quantization;
}

std::vector<Output> choose_outputs(const LoadPlan& plan, const ExportOptions& options) {
  std::vector<Output> outputs;
  const Chooser chooser(plan, options);
  for (const PlannedWeight& weight : plan.weights()) {
    check<core::ConfigError>(weight.rule.stack_size == 0,
                             "models.export: ", quote(weight.rule.name),
                             " is one of several that a tensor stacks, which is not supported");
    outputs.push_back(chooser.choose(weight));
    const Output& output = outputs.back();
    check<core::ConfigError>(!output.is_affine() || is_mlx_group(output.scheme->group_size),
                             "models.export: ", quote(weight.rule.name), ": quant groups of ",
                             output.scheme ? output.scheme->group_size : 0,
                             ", expected 32, 64 or 128; give --dtype");
  }
  return outputs;
}

}  // namespace

nlohmann::json export_weights(const io::TensorFile& file, const ExportOptions& options,
                              const dist::Group& group, const std::string& folder,
                              const ExportProgress& progress) {
  using Role = io::TensorFolderWriter::Role;
  const LoadPlan plan = make_plan(file, 1);
  const std::vector<Output> outputs = choose_outputs(plan, options);
  std::vector<io::TensorSpec> specs;
  for (const Output& output : outputs) {
    for (io::TensorSpec& spec : specs_of(output)) specs.push_back(std::move(spec));
  }
  const auto files = io::spread_over_files(specs, options.max_file_bytes,
                                           {{"format", options.scheme ? "mlx" : "pt"}});
  std::optional<io::TensorFolderWriter> writer;
  dist::run_together(group, [&] {
    if (group.rank() == 0) writer.emplace(folder, files, Role::kLaysOut);
  });
  dist::run_together(group, [&] {
    if (group.rank() != 0) writer.emplace(folder, files, Role::kJoins);
    Exporter exporter(file, plan, *writer, group);
    uint64_t done = 0;
    for (const Output& output : outputs) {
      exporter.write(output);
      done += plan.planned_bytes(*output.weight, 0);
      progress(done, plan.params().planned_bytes(0));
    }
    writer->sync();
  });
  dist::run_together(group, [&] { writer->verify(); });
  return quantization_of(outputs);
}

}  // namespace weft::models
