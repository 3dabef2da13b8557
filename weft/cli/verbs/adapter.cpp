#include "weft/cli/verbs/adapter.h"

#include <filesystem>

#include "weft/cli/verbs/export_run.h"
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

void add_adapter_flag(CLI::App& app, ModelFlags& flags) {
  app.add_option("--adapter", flags.adapter,
                 "low-rank adapters to put beside the weights: a run of weft lora, whose base is "
                 "then MODEL's default, or a folder of peft");
}

std::optional<GivenAdapter> open_adapter(const ModelFlags& flags) {
  if (flags.adapter.empty()) return std::nullopt;
  return open_path(flags.adapter);
}

std::string base_path(const ModelFlags& flags) {
  if (!flags.model.empty()) return flags.model;
  const auto adapter = open_adapter(flags);
  if (!adapter.has_value() || !adapter->run.has_value()) return model_path(flags.model);
  const std::string& base = adapter->run->model.from;
  core::check<core::ConfigError>(fs::exists(base), "--adapter: ", core::quote(flags.adapter),
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
