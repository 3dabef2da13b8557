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
#include "weft/quant/integers/packed_words.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/shard/split.h"

namespace weft::models {
namespace {

class Exporter {
 public:
  Exporter(const RowReader& reader, FolderForm& form, io::TensorFolderWriter& writer,
           const dist::Group& group)
      : reader_(reader), form_(form), writer_(writer), group_(group) {}

  // This rank's rows.
  void write(const ExportOutput& output) {
    const PlannedWeight& weight = *output.weight;
    if (!output.columns.empty()) return write_columns(output);
    if (weight.rule.is_vector()) {
      if (group_.rank() == 0) write_vector(output);
      return;
    }
    // Of fewer units of rows than ranks the first ranks have one each.
    const int64_t unit = output.row_unit(), units = RowReader::num_rows(weight) / unit;
    const int64_t n = RowReader::has_single_rows(weight) ? std::min(units, group_.size()) : 1;
    if (group_.rank() >= n) return;
    const shard::Range own = shard::part(units, n, group_.rank());
    for (const shard::Range& run :
         RowReader::runs(weight, {own.start * unit, own.length * unit}, unit)) {
      write_rows(output, run);
    }
  }

 private:
  // Each rank has some of the experts.
  void write_columns(const ExportOutput& output) {
    if (output.stack_index % group_.size() != group_.rank()) return;
    std::vector<at::Tensor> parts;
    for (const PlannedWeight* weight : output.columns) {
      const shard::Range all{0, RowReader::num_rows(*weight)};
      parts.push_back(weight->rule.is_vector() ? reader_.vector(*weight, at::kFloat)
                                               : reader_.plain_rows(*weight, all, at::kFloat));
    }
    const at::Tensor rows = at::stack(parts, 1).flatten(0, 1);
    const at::Tensor numbers = output.rule().is_vector() ? rows : rows.t();
    const at::Tensor values = converted(numbers.contiguous(), output.dtype, output.base);
    writer_.write(output.base, values.nbytes() * static_cast<uint64_t>(output.stack_index),
                  bytes_of(values));
  }

  void write_vector(const ExportOutput& output) {
    const at::Tensor numbers = reader_.vector(*output.weight, at::kFloat);
    const at::Tensor changed = form_.changed(output, 0, numbers);
    const at::Tensor values = converted(changed, output.dtype, output.rule().name);
    const auto size = static_cast<uint64_t>(values.element_size());
    writer_.write(output.vector_name(), size * static_cast<uint64_t>(output.numbers_before()),
                  bytes_of(values));
  }

  quant::QuantizedMatrix quantized_rows(const ExportOutput& output,
                                        const shard::Range& rows) const {
    if (output.is_quantized_anew) {
      return form_.quantize(output, rows.start,
                            reader_.plain_rows(*output.weight, rows, at::kFloat));
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
      const at::Tensor changed = form_.changed(output, rows.start, numbers);
      write_part(output, output.is_named_whole ? "" : ".weight", rows,
                 converted(changed, output.dtype, output.rule().name));
      return;
    }
    const quant::QuantizedMatrix matrix = quantized_rows(output, rows);
    if (output.format == FolderFormat::kCompressed) {
      write_compressed(output, rows, std::get<quant::AffineTensor>(matrix));
      return;
    }
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

  void write_compressed(const ExportOutput& output, const shard::Range& rows,
                        const quant::AffineTensor& affine) {
    write_part(output, ".weight_packed", rows, affine.packed.contiguous());
    write_numbers(output, ".weight_scale", rows, affine.scales);
    if (output.has_zero_points()) {
      const at::Tensor words = quant::words_of_columns(quant::zero_points(affine), affine.bits);
      write_part(output, ".weight_zero_point", rows, words, output.row_unit());
    }
    if (!output.makes_tensors() || rows.start > 0) return;
    const int64_t out = output.fused_rows > 0 ? output.fused_rows : output.rule().out;
    const at::Tensor shape = at::tensor({out, output.rule().in}, at::kLong);
    writer_.write(output.base + ".weight_shape", 0, bytes_of(shape));
  }

  void write_numbers(const ExportOutput& output, const char* suffix, const shard::Range& rows,
                     const at::Tensor& part) {
    write_part(output, suffix, rows,
               converted(part, output.scheme->scale_dtype, output.base + suffix));
  }

  // `unit` rows of the matrix share one of the part.
  void write_part(const ExportOutput& output, const char* suffix, const shard::Range& rows,
                  const at::Tensor& part, int64_t unit = 1) {
    const uint64_t unit_bytes = part.nbytes() / static_cast<uint64_t>(rows.length / unit);
    const auto bytes = bytes_of(part);
    const auto place = [&](int64_t row) { return unit_bytes * static_cast<uint64_t>(row / unit); };
    for (const RowGroups::Piece& piece : output.pieces(rows)) {
      writer_.write(output.base + suffix, place(piece.stored_row),
                    bytes.subspan(place(piece.row), place(piece.length)));
    }
  }

  const RowReader& reader_;
  FolderForm& form_;
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
  const bool is_mlx = options.scheme && options.format == FolderFormat::kMlx;
  return io::spread_over_files(specs, options.max_file_bytes, {{"format", is_mlx ? "mlx" : "pt"}});
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
  std::vector<ExportOutput> outputs = choose_outputs(plan, config, options);
  const RowReader reader(file, plan);
  FolderForm usual;
  FolderForm& form = options.form == nullptr ? usual : *options.form;
  form.prepare(config, reader, outputs);
  const auto files = files_of(outputs, options);
  std::optional<io::TensorFolderWriter> writer;
  dist::run_together(group, [&] {
    if (group.rank() == 0) writer.emplace(folder, files, Role::kLaysOut);
  });
  dist::run_together(group, [&] {
    if (group.rank() != 0) writer.emplace(folder, files, Role::kJoins);
    Exporter exporter(reader, form, *writer, group);
    const uint64_t all = plan.params().planned_bytes(0);
    uint64_t done = 0;
    for (const ExportOutput& output : outputs) {
      exporter.write(output);
      for (const PlannedWeight* weight : output.weights()) done += plan.planned_bytes(*weight, 0);
      progress(done, all);
    }
    writer->sync();
  });
  dist::run_together(group, [&] { writer->verify(); });
  return options.format == FolderFormat::kCompressed ? compressed_quantization_of(outputs, config)
                                                     : quantization_of(outputs);
}

}  // namespace weft::models
