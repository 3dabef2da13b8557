#include <array>

#include "weft/cli/model/export_model.h"
#include "weft/cli/model/export_run.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/progress.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/io/check_finite.h"
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

// Null without a wish.
const TypeName* find_type(const std::string& name) {
  if (name.empty()) return nullptr;
  for (const TypeName& row : kTypes) {
    if (name == row.flag || name == row.config) return &row;
  }
  core::fail<core::ConfigError>("--dtype: ", core::quote(name), ", expected f32, f16 or bf16");
}

bool is_gguf_path(const std::string& path) { return path.ends_with(".gguf"); }

void check_output(const ModelOptions& model, const OutputOptions& output) {
  const Inputs inputs = model_inputs(model, model.path);
  if (!is_gguf_path(output.out)) return check_new_folder(output, model_folder(), inputs);
  core::check<core::ConfigError>(model.tp <= 1, "--tp: ", model.tp,
                                 ", expected 1: a GGUF file is written by one process");
  check_new_file(output.out, output.force, inputs);
}

void write_gguf(const std::string& model, std::optional<at::ScalarType> dtype,
                const std::string& path) {
  constexpr double kMegabyte = 1e6;
  const auto file = io::TensorFile::open(model);
  {
    ProgressBar bar("writing", "MB", kMegabyte, true);
    io::check_finite(*file);
    models::export_gguf(*file, dtype, path,
                        [&](uint64_t done, uint64_t total) { bar.show(done, total); });
  }
  print_gguf_notes(*file);
}

void convert_run(const std::string& checkpoint, const TypeName* type,
                 const ConvertOptions& options) {
  const OutputOptions& output = options.output;
  const ModelOptions& model = options.model;
  core::check<core::ConfigError>(!is_gguf_path(output.out), checkpoint, ": ",
                                 core::quote(output.out),
                                 ", expected a folder, which a checkpoint becomes; convert that to "
                                 "GGUF then");
  core::check<core::ConfigError>(model.tp <= 1, "--tp: ", model.tp,
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

int convert_on_ranks(const ModelOptions& model, const dist::World& world,
                     const ConvertOptions& options) {
  const TypeName* type = find_type(options.dtype);
  models::ExportOptions export_options;
  if (type != nullptr) export_options.dtype = type->type;
  if (is_gguf_path(options.output.out)) {
    write_gguf(model.path, export_options.dtype, options.output.out);
    return 0;
  }
  export_options.max_file_bytes = options.output.max_file_bytes;
  export_model(model.path, export_options, type == nullptr ? "" : type->config, options.output,
               world);
  return 0;
}

}  // namespace

int run_convert(const ConvertOptions& options) {
  const TypeName* type = find_type(options.dtype);
  if (const auto checkpoint = find_checkpoint(options.model.path)) {
    convert_run(*checkpoint, type, options);
    return 0;
  }
  core::check<core::ConfigError>(!options.is_peft, "--peft: ", core::quote(options.model.path),
                                 ": expected a run of weft lora or one of its checkpoints");
  check_output(options.model, options.output);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return convert_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
