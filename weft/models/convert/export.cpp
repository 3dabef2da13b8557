#include "weft/models/convert/export.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/dist/launch/run_together.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/convert/export_output.h"
#include "weft/models/convert/export_types.h"
#include "weft/models/convert/folder_config.h"
#include "weft/models/convert/row_reader.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/load/load.h"
#include "weft/models/load/plain_latents.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/shard/split.h"

namespace weft::models {
namespace {

class Exporter {
 public:
  Exporter(const io::TensorFile& file, const LoadPlan& plan, io::TensorFolderWriter& writer,
           const dist::Group& group)
      : reader_(file, plan), writer_(writer), group_(group) {}

  // This rank's rows.
  void write(const ExportOutput& output) {
    const PlannedWeight& weight = *output.weight;
    if (weight.rule.is_vector()) {
      if (group_.rank() == 0) write_vector(output);
      return;
    }
    // Of fewer rows than ranks the first ranks have one each.
    const int64_t rows = RowReader::num_rows(weight);
    const int64_t n = RowReader::has_single_rows(weight) ? std::min(rows, group_.size()) : 1;
    if (group_.rank() >= n) return;
    for (const shard::Range& run : RowReader::runs(weight, shard::part(rows, n, group_.rank()))) {
      write_rows(output, run);
    }
  }

 private:
  void write_vector(const ExportOutput& output) {
    const at::Tensor numbers = reader_.vector(*output.weight, output.dtype);
    const at::Tensor values = converted(numbers, output.dtype, output.rule().name);
    const auto size = static_cast<uint64_t>(values.element_size());
    writer_.write(output.vector_name(), size * static_cast<uint64_t>(output.numbers_before()),
                  bytes_of(values));
  }

  quant::QuantizedMatrix quantized_rows(const ExportOutput& output,
                                        const shard::Range& rows) const {
    if (output.is_quantized_anew) {
      return quant::quantize(reader_.plain_rows(*output.weight, rows, at::kFloat), *output.scheme);
    }
    // A row with one scale is read as one quant group, which MLX has in smaller ones.
    quant::QuantizedMatrix matrix = quant::regroup(
        std::get<quant::QuantizedMatrix>(reader_.rows(*output.weight, rows, at::kFloat)),
        output.scheme->group_size);
    auto* affine = std::get_if<quant::AffineTensor>(&matrix);
    if (affine != nullptr && affine->is_symmetric()) {
      const auto middle = static_cast<double>(int64_t{1} << (affine->bits - 1));
      affine->offsets = affine->scales.to(at::kFloat) * -middle;
    }
    return matrix;
  }

  void write_rows(const ExportOutput& output, const shard::Range& rows) {
    if (!output.scheme) {
      const at::Tensor numbers = reader_.plain_rows(*output.weight, rows, at::kFloat);
      write_part(output, ".weight", rows, converted(numbers, output.dtype, output.rule().name));
      return;
    }
    quant::QuantizedMatrix matrix = quantized_rows(output, rows);
    if (const auto* affine = std::get_if<quant::AffineTensor>(&matrix)) {
      write_part(output, ".weight", rows, affine->packed.contiguous());
      write_numbers(output, ".scales", rows, affine->scales);
      write_numbers(output, ".biases", rows, affine->offsets);
      return;
    }
    const auto& floats = std::get<quant::MicroscaledTensor>(matrix);
    write_part(output, ".weight", rows, floats.packed.contiguous());
    write_part(output, ".scales", rows, floats.scales.contiguous());
  }

  void write_numbers(const ExportOutput& output, const char* suffix, const shard::Range& rows,
                     const at::Tensor& part) {
    write_part(output, suffix, rows,
               converted(part, output.scheme->scale_dtype, output.base + suffix));
  }

  void write_part(const ExportOutput& output, const char* suffix, const shard::Range& rows,
                  const at::Tensor& part) {
    const uint64_t row_bytes = part.nbytes() / static_cast<uint64_t>(rows.length);
    const auto bytes = bytes_of(part);
    for (const RowGroups::Piece& piece : output.pieces(rows)) {
      writer_.write(output.base + suffix, row_bytes * static_cast<uint64_t>(piece.stored_row),
                    bytes.subspan(row_bytes * static_cast<uint64_t>(piece.row),
                                  row_bytes * static_cast<uint64_t>(piece.length)));
    }
  }

  RowReader reader_;
  io::TensorFolderWriter& writer_;
  const dist::Group& group_;
};

std::vector<io::OutputFile> files_of(const std::vector<ExportOutput>& outputs,
                                     const ExportOptions& options) {
  std::vector<io::TensorSpec> specs;
  for (const ExportOutput& output : outputs) {
    if (!output.makes_tensors()) continue;
    for (io::TensorSpec& spec : output.specs()) specs.push_back(std::move(spec));
  }
  return io::spread_over_files(specs, options.max_file_bytes,
                               {{"format", options.scheme ? "mlx" : "pt"}});
}

}  // namespace

nlohmann::json export_weights(const io::TensorFile& given, const ExportOptions& options,
                              const dist::Group& group, const std::string& folder,
                              const ExportProgress& progress) {
  using Role = io::TensorFolderWriter::Role;
  const auto plain = with_plain_latents(given, LatentBytes::kRead);
  const io::TensorFile& file = plain == nullptr ? given : *plain;
  const ModelConfig config = folder_config(file);
  const LoadPlan plan = make_plan(file, 1);
  check_copied_head(config, file, group);
  const std::vector<ExportOutput> outputs = choose_outputs(plan, config, options);
  const auto files = files_of(outputs, options);
  std::optional<io::TensorFolderWriter> writer;
  dist::run_together(group, [&] {
    if (group.rank() == 0) writer.emplace(folder, files, Role::kLaysOut);
  });
  dist::run_together(group, [&] {
    if (group.rank() != 0) writer.emplace(folder, files, Role::kJoins);
    Exporter exporter(file, plan, *writer, group);
    const uint64_t all = plan.params().planned_bytes(0);
    uint64_t done = 0;
    for (const ExportOutput& output : outputs) {
      exporter.write(output);
      done += plan.planned_bytes(*output.weight, 0);
      progress(done, all);
    }
    writer->sync();
  });
  dist::run_together(group, [&] { writer->verify(); });
  return quantization_of(outputs);
}

}  // namespace weft::models
