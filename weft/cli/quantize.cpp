#include "weft/cli/export_model.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/atomic_folder.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

struct Options {
  std::string mode = "affine";
  models::AffineScheme scheme;
  OutputFlags output;
};

int run_body(const ModelFlags& flags, const dist::World& world, const void* untyped) {
  const auto& options = *static_cast<const Options*>(untyped);
  models::ExportOptions export_options;
  export_options.scheme = options.scheme;
  export_options.max_file_bytes = options.output.max_file_bytes;
  export_model(flags.model, export_options, "", options.output, world);
  return 0;
}

void check_scheme(const Options& options) {
  const int64_t bits = options.scheme.bits, group = options.scheme.group_size;
  check<ConfigError>(options.mode == "affine", "--mode: ", core::quote(options.mode),
                     ", expected affine");
  check<ConfigError>((bits >= 2 && bits <= 6) || bits == 8, "--bits: ", bits,
                     ", expected 2, 3, 4, 5, 6 or 8");
  check<ConfigError>(group == 32 || group == 64 || group == 128, "--group-size: ", group,
                     ", expected 32, 64 or 128");
}

}  // namespace

int run_quantize(const Args& args) {
  CLI::App app(
      "Writes a model with its matrices quantized, as a folder that MLX reads too: all linear "
      "layers, embedding and head; norms and biases stay as they are.",
      "quantize");
  ModelFlags flags;
  Options options;
  add_model_flags(app, flags);
  add_output_flags(app, options.output);
  app.add_option("-b,--bits", options.scheme.bits, "bits per weight: 2 to 6 or 8 (default: 4)");
  app.add_option("-g,--group-size", options.scheme.group_size,
                 "weights that share a scale: 32, 64 or 128 (default: 64)");
  app.add_option("--mode", options.mode, "affine (default)");
  if (!parse_flags(app, args, {"--model", "--out"})) return 0;
  check_scheme(options);
  // The ranks that another process has started find nothing there yet either.
  core::check_output_folder(options.output.out, options.output.force, kModelMarker);
  return run_on_ranks(flags, "quantize", args, run_body, &options);
}

}  // namespace weft::cli
