#include "weft/cli/model/export_model.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/cli/model/session.h"
#include "weft/cli/progress.h"
#include "weft/core/files/atomic_folder.h"
#include "weft/dist/launch/run_together.h"
#include "weft/generate/share_prompt.h"
#include "weft/io/check_finite.h"
#include "weft/models/convert/keys/gguf_model_keys.h"

namespace weft::cli {
namespace {

constexpr double kMegabyte = 1e6;

// Rank 0's text on all ranks.
std::string share_text(const dist::Group& group, const std::string& text) {
  const std::vector<int64_t> shared = generate::share_tokens(group, {text.begin(), text.end()});
  return {shared.begin(), shared.end()};
}

}  // namespace

void export_model(const std::string& model, const models::ExportOptions& options,
                  const std::string& dtype_name, const OutputOptions& output,
                  const dist::World& world) {
  const dist::Group& group = world.group();
  const auto file = io::TensorFile::open(model);
  std::optional<core::AtomicFolder> folder;
  dist::run_together(group, [&] {
    if (group.rank() != 0) return;
    io::check_finite(*file);
    folder.emplace(output.out, output.force, model_folder());
  });
  const std::string path = share_text(group, folder ? folder->temporary_path() : "");
  nlohmann::json quantization;
  {
    ProgressBar bar("writing", "MB", kMegabyte, group.rank() == 0);
    quantization = models::export_weights(
        *file, options, group, path, [&](uint64_t done, uint64_t total) { bar.show(done, total); });
  }
  dist::run_together(group, [&] {
    if (!folder) return;
    models::export_files(*file, quantization, dtype_name, path);
    folder->commit();
  });
}

void print_gguf_notes(const io::TensorFile& file) {
  for (const std::string& note : models::ignored_in_gguf(models::read_config(file))) {
    std::fprintf(stderr, "%s\n", note.c_str());
  }
}

}  // namespace weft::cli
