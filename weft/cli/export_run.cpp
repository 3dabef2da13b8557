#include "weft/cli/export_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/atomic_file.h"
#include "weft/core/atomic_folder.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/export.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/reader.h"
#include "weft/train/checkpoint/write_weights.h"

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

}  // namespace

std::optional<std::string> find_checkpoint(const std::string& path) {
  if (!fs::is_directory(path)) return std::nullopt;
  if (fs::exists(fs::path(path) / train::kManifestName)) return path;
  return train::find_latest(path);
}

void export_run(const std::string& checkpoint, const std::string& dtype,
                const OutputFlags& output) {
  train::CheckpointReader reader(checkpoint);
  const core::Json trainer = core::parse_json(reader.manifest().trainer, checkpoint);
  core::AtomicFolder folder(output.out, output.force, kModelMarker);
  train::write_weights(reader, dtype == "bfloat16" ? io::Dtype::kBF16 : io::Dtype::kF32,
                       output.max_file_bytes, folder.temporary_path());
  models::export_new_files(object_at(trainer, "model", checkpoint),
                           text_at(trainer, "tokenizer", checkpoint), dtype,
                           folder.temporary_path());
  folder.commit();
}

}  // namespace weft::cli
