#include <cstdio>
#include <optional>
#include <regex>
#include <utility>

#include "weft/cli/model/export_model.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/io/check_finite.h"
#include "weft/models/quantize/quantized_folder.h"
#include "weft/models/quantize/quantized_gguf.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

// What a folder gets.
struct FolderChoice {
  models::ExportOptions form;
  models::RoundingMethod method;
};

quant::Scheme scheme_of(const QuantizeOptions& options) {
  const std::string name = options.mode.empty() ? "affine" : options.mode;
  const quant::Mode mode = quant::parse_mode(name, "--mode");
  const quant::Scheme scheme =
      quant::make_scheme(mode, options.bits, options.group_size, "--bits, --group-size");
  const int64_t group = scheme.group_size;
  check<ConfigError>(mode != quant::Mode::kAffine || group == 32 || group == 64 || group == 128,
                     "--group-size: ", group, ", expected 32, 64 or 128");
  return scheme;
}

models::FolderFormat format_of(const QuantizeOptions& options, const quant::Scheme& scheme) {
  const bool is_compressed = options.format == "compressed-tensors";
  check<ConfigError>(is_compressed || options.format.empty() || options.format == "mlx",
                     "--format: ", core::quote(options.format),
                     ", expected mlx or compressed-tensors");
  check<ConfigError>(is_compressed || !options.is_asymmetric,
                     "--asymmetric: expected --format compressed-tensors; MLX's have offsets "
                     "anyway");
  if (!is_compressed) return models::FolderFormat::kMlx;
  check<ConfigError>(scheme.mode == quant::Mode::kAffine, "--mode: ", core::quote(options.mode),
                     ", expected affine with --format compressed-tensors");
  check<ConfigError>(scheme.bits == 4 || scheme.bits == 8, "--bits: ", scheme.bits,
                     ", expected 4 or 8 with --format compressed-tensors");
  return models::FolderFormat::kCompressed;
}

void check_budget(const QuantizeOptions& options, const models::ExportOptions& form) {
  if (options.bits_per_weight == 0) return;
  check<ConfigError>(options.bits == 0, "--bits: ", options.bits,
                     ", expected none beside --bits-per-weight, which chooses them");
  check<ConfigError>(form.scheme->mode == quant::Mode::kAffine,
                     "--bits-per-weight: ", options.bits_per_weight,
                     ", expected --mode affine, got ", options.mode);
  check<ConfigError>(form.format == models::FolderFormat::kMlx,
                     "--bits-per-weight: ", options.bits_per_weight,
                     ", expected --format mlx or a name that ends in .gguf, got ", options.format);
}

FolderChoice folder_choice(const QuantizeOptions& options) {
  FolderChoice choice;
  const quant::Scheme scheme = scheme_of(options);
  choice.form.scheme = scheme;
  choice.form.format = format_of(options, scheme);
  if (choice.form.format == models::FolderFormat::kCompressed) {
    choice.form.offsets =
        options.is_asymmetric ? quant::Offsets::kZeroPoints : quant::Offsets::kMiddle;
  }
  check_budget(options, choice.form);
  choice.form.max_file_bytes = options.output.max_file_bytes;
  const std::string method = options.method.empty() ? "round" : options.method;
  choice.method = models::parse_method(method, "--method");
  const bool is_plain = choice.method.is_plain();
  check<ConfigError>(is_plain || scheme.mode == quant::Mode::kAffine, "--method: ", method,
                     ", expected round with --mode ", quant::mode_info(scheme.mode).name);
  check<ConfigError>(is_plain || !options.importance.empty(), "--method: ", method,
                     ", expected --imatrix beside it; make the file with weft imatrix",
                     choice.method.has_feedback ? " --products" : "");
  check<ConfigError>(!is_plain || options.importance.empty(), "--imatrix: OUT is ",
                     core::quote(options.output.out),
                     ", a folder, expected --method gptq, awq or awq+gptq beside it");
  return choice;
}

void print_bits(double bits_per_weight) {
  std::fprintf(stderr, "%.3f bits per weight\n", bits_per_weight);
}

int quantize_on_ranks(const ModelOptions& model, const dist::World& world,
                      const QuantizeOptions& options) {
  FolderChoice choice = folder_choice(options);
  models::FolderRounding rounding{choice.method, options.importance, {}, options.bits_per_weight};
  dist::run_together(world.group(), [&] {
    if (!options.importance.empty()) {
      rounding.importance = models::read_importance(options.importance);
    }
  });
  models::QuantizedFolder form(std::move(rounding), world.group());
  choice.form.form = &form;
  export_model(model.path, choice.form, "", options.output, world);
  if (world.group().rank() != 0) return 0;
  for (const std::string& note : form.notes()) std::fprintf(stderr, "%s\n", note.c_str());
  if (options.bits_per_weight > 0) print_bits(form.bits_per_weight());
  return 0;
}

std::optional<core::Dtype> type_of(const std::string& name, const char* flag) {
  if (name.empty()) return std::nullopt;
  return models::block_type_named(name, flag);
}

std::regex expression(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error&) {
    core::fail<ConfigError>("--tensor-type: ", core::quote(text),
                            ", expected a regular expression; write \\ before its own signs");
  }
}

models::QuantizationOptions gguf_options(const QuantizeOptions& options) {
  models::QuantizationOptions result;
  result.mix = &models::find_mix(options.type.empty() ? "Q4_K_M" : options.type, "--type");
  result.bits_per_weight = options.bits_per_weight;
  result.embedding = type_of(options.embedding_type, "--token-embedding-type");
  result.head = type_of(options.head_type, "--output-tensor-type");
  for (const std::string& row : options.tensor_types) {
    const size_t sign = row.rfind('=');
    check<ConfigError>(sign != std::string::npos && sign > 0, "--tensor-type: ", core::quote(row),
                       ", expected NAME=TYPE, e.g. attn_v=Q6_K");
    const std::string text = row.substr(0, sign);
    result.tensors.push_back(
        {text, expression(text), models::block_type_named(row.substr(sign + 1), "--tensor-type")});
  }
  result.importance_path = options.importance;
  return result;
}

int quantize_to_gguf(const std::string& model, const QuantizeOptions& options,
                     const dist::World& world) {
  const dist::Group& group = world.group();
  const bool is_root = group.rank() == 0;
  models::QuantizationOptions wanted = gguf_options(options);
  const auto file = io::TensorFile::open(model);
  dist::run_together(group, [&] {
    // A GGUF file is refused below, before its numbers matter.
    if (is_root && !file->is_gguf()) io::check_finite(*file);
    if (!options.importance.empty()) {
      wanted.importance = models::read_importance(options.importance);
    }
  });
  models::QuantizedForm form(std::move(wanted), group);
  {
    constexpr double kMegabyte = 1e6;
    ProgressBar bar("writing", "MB", kMegabyte, is_root);
    models::export_gguf(*file, form, group, options.output.out,
                        [&](uint64_t done, uint64_t total) { bar.show(done, total); });
  }
  if (!is_root) return 0;
  print_gguf_notes(*file);
  for (const std::string& note : form.notes()) std::fprintf(stderr, "%s\n", note.c_str());
  print_bits(form.bits_per_weight());
  return 0;
}

int run_quantize_to_gguf(const QuantizeOptions& options) {
  gguf_options(options);
  Inputs inputs = model_inputs(options.model, options.model.path);
  inputs.push_back(options.importance);
  check_new_file(options.output.out, options.output.force, inputs);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return quantize_to_gguf(model.path, options, world);
  });
}

}  // namespace

int run_quantize(const QuantizeOptions& options) {
  if (options.output.out.ends_with(".gguf")) return run_quantize_to_gguf(options);
  folder_choice(options);
  Inputs inputs = model_inputs(options.model, options.model.path);
  inputs.push_back(options.importance);
  // The ranks that another process has started find nothing there yet either.
  check_new_folder(options.output, model_folder(), inputs);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return quantize_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
