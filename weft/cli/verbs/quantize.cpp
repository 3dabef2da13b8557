#include "weft/cli/export_model.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

struct QuantizeOptions {
  std::string mode = "affine";
  /// 0: the mode's own.
  int64_t bits = 0;
  int64_t group_size = 0;
  OutputFlags output;
};

quant::Scheme scheme_of(const QuantizeOptions& options) {
  const quant::Mode mode = quant::parse_mode(options.mode, "--mode");
  const quant::Scheme scheme =
      quant::make_scheme(mode, options.bits, options.group_size, "--bits, --group-size");
  const int64_t group = scheme.group_size;
  check<ConfigError>(mode != quant::Mode::kAffine || group == 32 || group == 64 || group == 128,
                     "--group-size: ", group, ", expected 32, 64 or 128");
  return scheme;
}

int quantize_on_ranks(const ModelFlags& flags, const dist::World& world, const void* untyped) {
  const auto& options = *static_cast<const QuantizeOptions*>(untyped);
  models::ExportOptions export_options;
  export_options.scheme = scheme_of(options);
  export_options.max_file_bytes = options.output.max_file_bytes;
  export_model(flags.model, export_options, "", options.output, world);
  return 0;
}

}  // namespace

int run_quantize(const Args& args) {
  CLI::App app(
      "Writes a model with its matrices quantized, as a folder that MLX reads too: all linear "
      "layers, embedding and head; norms and biases stay as they are.",
      "quantize");
  ModelFlags flags;
  QuantizeOptions options;
  add_model_flags(app, flags);
  add_output_flags(app, options.output);
  app.add_option("-b,--bits", options.bits, "bits per weight: 2 to 6 or 8 (default: 4)");
  app.add_option("-g,--group-size", options.group_size,
                 "weights that share a scale: 32, 64 or 128 (default: 64)");
  app.add_option(
      "--mode", options.mode,
      "affine (default), mxfp4, mxfp8 or nvfp4, which have bits and groups of their own");
  if (!parse_flags(app, args, {"--model", "--out"})) return 0;
  scheme_of(options);
  // The ranks that another process has started find nothing there yet either.
  core::check_output_folder(options.output.out, options.output.force, kModelMarker);
  return run_on_ranks(flags, "quantize", args, quantize_on_ranks, &options);
}

}  // namespace weft::cli
