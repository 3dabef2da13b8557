#include "weft/cli/verbs/train_config.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "weft/cli/flags.h"
#include "weft/core/error.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"
#include "weft/models/options/exact_options.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"
#include "weft/train/config/check_config.h"
#include "weft/train/plan/sizes_of_config.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

train::ModelSizes sizes_of_file(const std::string& path, bool is_exact) {
  const models::ModelConfig config = models::read_config(*io::TensorFile::open(path));
  check<ConfigError>(config.experts.num_experts == 0, path,
                     ": a model with experts, which training does not know; use one without");
  if (is_exact) models::check_exact_options(config);
  return train::sizes_of(config);
}

}  // namespace

train::TrainConfig read_config(const PlannedRun& run) {
  check<ConfigError>(!run.config.empty(), "CONFIG: none given; name a TOML file");
  std::vector<train::GivenValue> given;
  const std::pair<const char*, const std::string&> axes[] = {
      {"replicas", run.replicas}, {"dp", run.dp}, {"pipe", run.pipe}, {"tp", run.tp}};
  for (const auto& [axis, text] : axes) {
    if (text.empty()) continue;
    const std::string name = core::join("mesh.", axis);
    // Flags have the environment's values, too.
    const std::string variable = train::environment_name(name);
    const char* value = std::getenv(variable.c_str());
    const bool is_environment = value != nullptr && text == value;
    given.push_back({name, text, is_environment ? variable : core::join("--", axis)});
  }
  return train::read_train_config(run.config, given);
}

text::Tokenizer tokenizer_of(const train::TrainConfig& config) {
  const std::filesystem::path path = config.model.tokenizer;
  if (path.empty()) {
    return models::load_tokenizer(*io::TensorFile::open(model_path(config.model.from)));
  }
  if (path.extension() == ".gguf") return models::load_tokenizer(*io::TensorFile::open(path));
  const bool is_file = path.filename() == "tokenizer.json";
  const auto folder = is_file ? std::filesystem::absolute(path).parent_path() : path;
  return text::read_tokenizer_folder(folder.string()).tokenizer;
}

train::ModelSizes model_sizes(train::TrainConfig& config) {
  train::complete_model(config);
  if (!config.model.from.empty()) return sizes_of_file(config.model.from, config.train.exact);
  if (config.model.vocab_size == 0) {
    config.model.vocab_size = static_cast<int64_t>(tokenizer_of(config).vocab_size());
  }
  if (config.train.exact) {
    models::check_exact_options(train::new_model_config(config.model, config.model.vocab_size));
  }
  return train::sizes_of(config.model);
}

}  // namespace weft::cli
