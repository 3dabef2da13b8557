#include <array>
#include <filesystem>

#include "weft/cli/export_model.h"
#include "weft/cli/progress.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/cli/verbs/export_run.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"
#include "weft/models/convert/export_gguf.h"

namespace weft::cli {
namespace {

struct TypeName {
  const char* flag;
  const char* config;
  at::ScalarType type;
};
constexpr std::array<TypeName, 3> kTypes = {{{"f32", "float32", at::kFloat},
                                             {"f16", "float16", at::kHalf},
                                             {"bf16", "bfloat16", at::kBFloat16}}};

struct ConvertOptions {
  std::string dtype;
  bool is_peft = false;
  OutputFlags output;
};

// Null without a wish.
const TypeName* find_type(const std::string& name) {
  if (name.empty()) return nullptr;
  for (const TypeName& row : kTypes) {
    if (name == row.flag || name == row.config) return &row;
  }
  core::fail<core::ConfigError>("--dtype: ", core::quote(name), ", expected f32, f16 or bf16");
}

bool is_gguf_path(const std::string& path) { return path.ends_with(".gguf"); }

void check_gguf_output(const ModelFlags& flags, const OutputFlags& output) {
  core::check<core::ConfigError>(flags.tp <= 1, "--tp: ", flags.tp,
                                 ", expected 1: a GGUF file is written by one process");
  core::check<core::ConfigError>(output.force || !std::filesystem::exists(output.out), output.out,
                                 ": is there already; choose another path or give --force");
}

void write_gguf(const std::string& model, std::optional<at::ScalarType> dtype,
                const std::string& path) {
  constexpr double kMegabyte = 1e6;
  ProgressBar bar("writing", "MB", kMegabyte, true);
  models::export_gguf(*io::TensorFile::open(model), dtype, path,
                      [&](uint64_t done, uint64_t total) { bar.show(done, total); });
}

void convert_run(const std::string& checkpoint, const TypeName* type, const ModelFlags& flags,
                 const ConvertOptions& options) {
  const OutputFlags& output = options.output;
  core::check<core::ConfigError>(flags.tp <= 1, "--tp: ", flags.tp,
                                 ", expected 1: a checkpoint is converted by one process");
  if (options.is_peft) {
    core::check<core::ConfigError>(type == nullptr, "--dtype: ", core::quote(options.dtype),
                                   ", expected none beside --peft, which writes float32");
    return export_peft(checkpoint, output);
  }
  const std::string dtype = type == nullptr ? "float32" : type->config;
  core::check<core::ConfigError>(dtype != "float16",
                                 "--dtype: f16, expected f32 or bf16 for a "
                                 "checkpoint");
  export_run(checkpoint, dtype, output);
}

int convert_on_ranks(const ModelFlags& flags, const dist::World& world, const void* untyped) {
  const auto& options = *static_cast<const ConvertOptions*>(untyped);
  const TypeName* type = find_type(options.dtype);
  models::ExportOptions export_options;
  if (type != nullptr) export_options.dtype = type->type;
  if (is_gguf_path(options.output.out)) {
    write_gguf(flags.model, export_options.dtype, options.output.out);
    return 0;
  }
  export_options.max_file_bytes = options.output.max_file_bytes;
  export_model(flags.model, export_options, type == nullptr ? "" : type->config, options.output,
               world);
  return 0;
}

}  // namespace

int run_convert(const Args& args) {
  CLI::App app(
      "Writes a model in another format. OUT that ends in .gguf: a folder's model as GGUF, in "
      "plain "
      "numbers. Else a Hugging Face folder: a GGUF's weights under Hugging Face's names and in "
      "its order, with config.json, tokenizer.json and the chat template. GGUF blocks become MLX's "
      "quantized parts with the same values, or with --dtype plain numbers, which transformers "
      "reads. MODEL may be a run of weft train or one of its checkpoints.",
      "convert");
  ModelFlags flags;
  ConvertOptions options;
  add_model_flags(app, flags);
  add_output_flags(app, options.output);
  app.add_option("--dtype", options.dtype,
                 "f32, f16 or bf16: all weights as plain numbers (default: as they are)");
  app.add_flag("--peft", options.is_peft,
               "of a run of weft lora: its adapters as a folder of Hugging Face's peft");
  if (!parse_flags(app, args, {"--model", "--out"})) return 0;
  const TypeName* type = find_type(options.dtype);
  if (const auto checkpoint = find_checkpoint(flags.model)) {
    convert_run(*checkpoint, type, flags, options);
    return 0;
  }
  core::check<core::ConfigError>(!options.is_peft, "--peft: ", core::quote(flags.model),
                                 ": expected a run of weft lora or one of its checkpoints");
  if (is_gguf_path(options.output.out)) {
    check_gguf_output(flags, options.output);
    return run_on_ranks(flags, "convert", args, convert_on_ranks, &options);
  }
  core::check_output_folder(options.output.out, options.output.force, kModelMarker);
  return run_on_ranks(flags, "convert", args, convert_on_ranks, &options);
}

}  // namespace weft::cli
