#include "weft/cli/cut/cut_rules.h"

#include <filesystem>

#include "weft/cli/flags.h"
#include "weft/core/error.h"
#include "weft/io/shard_info/function_file.h"
#include "weft/io/shard_info/recut.h"
#include "weft/io/tensor_file_builder.h"
#include "weft/models/config/config.h"
#include "weft/models/config/head_counts.h"
#include "weft/models/config/quantization_config.h"
#include "weft/models/config/sources.h"
#include "weft/models/registry.h"

namespace weft::cli {

using core::check;
using core::ConfigError;

std::shared_ptr<const io::TensorFile> open_tensors(const CutOptions& options) {
  const std::vector<std::string>& paths = options.tensors;
  if (paths.empty()) return io::TensorFile::open(model_path(options.model));
  if (paths.size() == 1) return io::TensorFile::open(paths[0]);
  io::TensorFileBuilder builder(core::join(paths[0], " and ", paths.size() - 1, " more"));
  for (const std::string& path : paths) builder.add_file(path);
  return builder.finish();
}

bool has_config(const io::TensorFile& file) {
  if (file.is_gguf()) return file.metadata().contains("general.architecture");
  return std::filesystem::exists(models::folder_of(file) + "/config.json");
}

io::FunctionTable functions_for(const io::TensorFile& file, const std::string& path) {
  io::FunctionTable functions;
  if (const auto heads = models::read_head_counts(file)) functions.set_heads(*heads);
  if (!path.empty()) io::read_functions(path, functions);
  return functions;
}

void check_functions(const io::ShardInfo& info, const io::FunctionTable& functions) {
  for (const io::ParamRule& rule : info.params) {
    const std::string where = core::join(info.where, ": parameter ", core::quote(rule.name));
    for (const io::ShardStep& step : rule.steps) {
      try {
        functions.find(step.function, where);
      } catch (const ConfigError& error) {
        core::fail<ConfigError>(error.what(), "; --functions takes such a file");
      }
    }
  }
}

io::ShardInfo find_info(const io::TensorFile& file, const CutOptions& options) {
  if (!options.shard_info.empty()) return io::ShardInfo::read(options.shard_info);
  if (auto cut = io::read_cut_checkpoint(file)) return std::move(cut->info);
  check<ConfigError>(has_config(file), file.path(),
                     ": no config.json says which model this is, so nothing says how to cut it; "
                     "give rules by --shard-info");
  const models::ModelConfig config = models::read_config(file);
  const auto said = models::read_quantization_config(file);
  return models::shard_info(file, models::find_family(config.family).rules(config, file), nullptr,
                            said ? &*said : nullptr);
}

}  // namespace weft::cli
