#include "weft/cli/model/adapter.h"

#include <filesystem>

#include "weft/cli/flags.h"
#include "weft/cli/model/export_run.h"
#include "weft/core/error.h"
#include "weft/models/peft_folder.h"
#include "weft/train/trainer/run_adapter.h"
#include "weft/train/trainer/run_model.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

GivenAdapter open_path(const std::string& path) {
  GivenAdapter given;
  if (fs::exists(fs::path(path) / models::kPeftConfigName)) {
    given.adapters = models::open_peft_folder(path);
    return given;
  }
  const auto checkpoint = find_checkpoint(path);
  core::check<core::ConfigError>(
      checkpoint.has_value(), "--adapter: ", core::quote(path),
      ": expected a run of weft lora, one of its checkpoints, or a folder of peft (",
      models::kPeftConfigName, " and ", models::kPeftWeightsName, ")");
  train::RunAdapter run = train::open_run_adapter(*checkpoint);
  given.adapters = std::move(run.adapters);
  given.run = std::move(run.config);
  return given;
}

}  // namespace

std::optional<GivenAdapter> open_adapter(const ModelOptions& options) {
  if (options.adapter.empty()) return std::nullopt;
  return open_path(options.adapter);
}

std::vector<GivenAdapter> open_named_adapters(const ModelOptions& options) {
  std::vector<GivenAdapter> opened;
  for (const NamedAdapter& named : options.named_adapters) {
    GivenAdapter& given = opened.emplace_back(open_path(named.path));
    const int64_t bits = given.run ? given.run->lora.quantize_bits : 0;
    core::check<core::ConfigError>(
        bits == 0, "--adapter: ", core::quote(named.path), ": was trained beside a base of ", bits,
        " bits, expected one that all requests share; leave its name out, or fuse it");
  }
  return opened;
}

std::string base_path(const ModelOptions& options) {
  if (!options.path.empty()) return model_path(options.path);
  const auto adapter = open_adapter(options);
  if (!adapter.has_value() || !adapter->run.has_value()) return model_path(options.path);
  const std::string& base = adapter->run->model.from;
  core::check<core::ConfigError>(fs::exists(base), "--adapter: ", core::quote(options.adapter),
                                 ": was trained beside ", core::quote(base),
                                 ", which is not there; name its place as MODEL");
  return base;
}

void put_adapter(models::CausalLM& model, const GivenAdapter& adapter, const std::string& base) {
  const auto& run = adapter.run;
  std::error_code error;
  const bool is_own = run.has_value() && fs::equivalent(run->model.from, base, error);
  if (is_own) train::quantize_base(model, *run);
  models::attach_adapter(model, *adapter.adapters);
}

}  // namespace weft::cli
