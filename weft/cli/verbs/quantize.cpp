#include "weft/cli/model/export_model.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

quant::Scheme scheme_of(const QuantizeOptions& options) {
  const quant::Mode mode = quant::parse_mode(options.mode, "--mode");
  const quant::Scheme scheme =
      quant::make_scheme(mode, options.bits, options.group_size, "--bits, --group-size");
  const int64_t group = scheme.group_size;
  check<ConfigError>(mode != quant::Mode::kAffine || group == 32 || group == 64 || group == 128,
                     "--group-size: ", group, ", expected 32, 64 or 128");
  return scheme;
}

int quantize_on_ranks(const ModelOptions& model, const dist::World& world,
                      const QuantizeOptions& options) {
  models::ExportOptions export_options;
  export_options.scheme = scheme_of(options);
  export_options.max_file_bytes = options.output.max_file_bytes;
  export_model(model.path, export_options, "", options.output, world);
  return 0;
}

}  // namespace

int run_quantize(const QuantizeOptions& options) {
  scheme_of(options);
  // The ranks that another process has started find nothing there yet either.
  check_new_folder(options.output, model_folder(), model_inputs(options.model, options.model.path));
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return quantize_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
