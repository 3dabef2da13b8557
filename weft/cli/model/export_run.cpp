#include "weft/cli/model/export_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/atomic_folder.h"
#include "weft/core/json.h"
#include "weft/io/check_finite.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/export.h"
#include "weft/models/convert/export_loaded.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/peft_folder.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/manifest.h"
#include "weft/train/checkpoint/reader.h"
#include "weft/train/checkpoint/write_weights.h"
#include "weft/train/config/config_json.h"
#include "weft/train/trainer/run_adapter.h"
#include "weft/train/trainer/run_model.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

std::string text_at(const core::Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  core::check<core::FormatError>(found != json.end() && found->is_string(), where, ": trainer.",
                                 key, ": expected a text; it is no checkpoint of weft train");
  return found->get<std::string>();
}

core::Json object_at(const core::Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  core::check<core::FormatError>(found != json.end() && found->is_object(), where, ": trainer.",
                                 key, ": expected an object; it is no checkpoint of weft train");
  return *found;
}

bool has_adapters(const core::Json& trainer) {
  const auto found = trainer.find("adapters");
  return found != trainer.end() && found->is_boolean() && found->get<bool>();
}

io::Dtype io_dtype(const std::string& name) {
  return name == "bfloat16" ? io::Dtype::kBF16 : io::Dtype::kF32;
}

// The model of a checkpoint, whole: what was trained has its masters, all else is the base's.
std::shared_ptr<models::CausalLM> trained_model(train::CheckpointReader& reader,
                                                const train::TrainConfig& config,
                                                train::TrainedPart part) {
  const auto model = train::make_run_model(config, part, 0, dist::Group()).model;
  for (const nn::ParameterInfo& info : nn::describe_parameters(*model)) {
    at::Tensor values = at::empty(info.sizes, at::kFloat);
    const std::span<float> span(values.mutable_data_ptr<float>(),
                                static_cast<size_t>(values.numel()));
    reader.read("master", {info.name, info.sizes, std::nullopt, 0, {0, values.numel()}}, span);
    const at::NoGradGuard no_grad;
    info.tensor.copy_(values);
  }
  return model;
}

void write_rest(const core::Json& trainer, const std::string& checkpoint, const std::string& dtype,
                const std::string& folder) {
  models::export_new_files(object_at(trainer, "model", checkpoint),
                           text_at(trainer, "tokenizer", checkpoint), dtype, folder);
}

// Embedding and head of one matrix stay one only if they have one adapter, or none.
void check_tied_targets(const std::string& checkpoint, const models::ModelConfig& model,
                        const std::vector<std::string>& targets) {
  if (!model.is_tied) return;
  const auto is_adapted = [&](models::Part part) {
    return std::ranges::any_of(targets, [&](const std::string& target) {
      return nn::is_lora_target(models::model_name(model, {part}), target);
    });
  };
  const bool has_table = is_adapted(models::Part::kEmbedding);
  core::check<core::ConfigError>(
      has_table == is_adapted(models::Part::kHead), checkpoint, ": adapts the ",
      has_table ? "embedding" : "head", " alone of a model that has one matrix for embedding and ",
      "head, expected both or neither; leave the adapters beside the model (--adapter)");
}

}  // namespace

std::optional<std::string> find_checkpoint(const std::string& path) {
  if (!fs::is_directory(path)) return std::nullopt;
  if (fs::exists(fs::path(path) / train::kManifestName)) return path;
  return train::find_latest(path);
}

void export_run(const std::string& checkpoint, const std::string& dtype,
                const OutputOptions& output) {
  train::CheckpointReader reader(checkpoint);
  const core::Json trainer = core::parse_json(reader.manifest().trainer, checkpoint);
  core::check<core::ConfigError>(!has_adapters(trainer), checkpoint,
                                 ": has adapters alone; weft fuse makes a model of them, convert "
                                 "--peft a folder of peft");
  std::vector<std::string> read = {checkpoint, text_at(trainer, "tokenizer", checkpoint)};
  const auto sizes = models::config_from_json(object_at(trainer, "model", checkpoint), checkpoint);
  std::optional<train::TrainConfig> config;
  if (!models::has_parameters_alone(sizes)) {
    config = train::config_from_json(object_at(trainer, "config", checkpoint), checkpoint);
    read.push_back(config->model.from);
  }
  check_new_folder(output, model_folder(), read);
  reader.check_files();
  core::AtomicFolder folder(output.out, output.force, model_folder());
  const std::string& path = folder.temporary_path();
  if (config) {
    const auto model = trained_model(reader, *config, train::TrainedPart::kAll);
    models::export_loaded(*model, io_dtype(dtype), output.max_file_bytes, path);
  } else {
    train::write_weights(reader, io_dtype(dtype), output.max_file_bytes, path);
  }
  write_rest(trainer, checkpoint, dtype, path);
  folder.commit();
}

void export_peft(const std::string& checkpoint, const OutputOptions& output) {
  const train::RunAdapter run = train::open_run_adapter(checkpoint);
  const core::Json trainer = core::parse_json(train::read_manifest(checkpoint).trainer, checkpoint);
  models::check_peft_layers(
      *run.adapters, models::config_from_json(object_at(trainer, "model", checkpoint), checkpoint));
  const auto kind = folder_of_files({models::kPeftConfigName, models::kPeftWeightsName});
  check_new_folder(output, kind, {checkpoint, run.config.model.from});
  core::AtomicFolder folder(output.out, output.force, kind);
  models::PeftConfig config;
  config.base_model = run.config.model.from;
  config.rank = run.config.lora.rank;
  config.alpha = run.config.lora.alpha;
  config.dropout = run.config.lora.dropout;
  config.targets = run.config.lora.targets;
  models::write_peft_folder(*run.adapters, config, folder.temporary_path());
  folder.commit();
}

void fuse_run(const std::string& checkpoint, const std::string& dtype,
              const OutputOptions& output) {
  train::CheckpointReader reader(checkpoint);
  const core::Json trainer = core::parse_json(reader.manifest().trainer, checkpoint);
  core::check<core::ConfigError>(has_adapters(trainer), checkpoint,
                                 ": has no adapters; weft convert writes its model");
  const auto config = train::config_from_json(object_at(trainer, "config", checkpoint), checkpoint);
  check_new_folder(output, model_folder(),
                   {checkpoint, config.model.from, text_at(trainer, "tokenizer", checkpoint)});
  check_tied_targets(checkpoint,
                     models::config_from_json(object_at(trainer, "model", checkpoint), checkpoint),
                     config.lora.targets);
  io::check_finite(*io::TensorFile::open(config.model.from));
  reader.check_files();
  const auto model = trained_model(reader, config, train::TrainedPart::kAdapters);
  nn::fuse_lora(*model);
  core::AtomicFolder folder(output.out, output.force, model_folder());
  models::export_loaded(*model, io_dtype(dtype), output.max_file_bytes, folder.temporary_path());
  write_rest(trainer, checkpoint, dtype, folder.temporary_path());
  folder.commit();
}

}  // namespace weft::cli
