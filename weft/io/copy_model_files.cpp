#include <algorithm>
#include <array>
#include <filesystem>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/io/tensor_folder_writer.h"

namespace weft::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
// What weights and their indexes end in.
constexpr std::array kWeights = {".safetensors",
                                 ".safetensors.index.json",
                                 "tensor-cache.json",
                                 "tensor-cache-b16.json",
                                 "ndarray-cache.json",
                                 "ndarray-cache-b16.json",
                                 ".gguf",
                                 ".bin",
                                 ".bin.index.json",
                                 ".pt",
                                 ".pth",
                                 ".npz",
                                 ".h5",
                                 ".msgpack"};
// The one folder that belongs to a model.
constexpr char kTemplates[] = "additional_chat_templates";

bool is_weights(const std::string& name) {
  return std::any_of(kWeights.begin(), kWeights.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

std::vector<fs::directory_entry> entries(const fs::path& folder) {
  std::vector<fs::directory_entry> list;
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    list.push_back(*it);
  }
  if (error) core::fail_errno(folder.string(), "cannot list the folder", error.value());
  std::sort(list.begin(), list.end());
  return list;
}

void copy_synced(const fs::path& from, const fs::path& to) {
  const std::string text = core::read_text_file(from.string(), kMaxBytes);
  core::write_file_atomically(to.string(), text);
}

}  // namespace

void copy_model_files(const std::string& from, const std::string& to,
                      const std::vector<std::string>& except) {
  for (const fs::directory_entry& entry : entries(from)) {
    const std::string name = entry.path().filename().string();
    const bool is_excepted = std::find(except.begin(), except.end(), name) != except.end();
    if (!entry.is_regular_file() || name.starts_with('.') || is_excepted || is_weights(name)) {
      continue;
    }
    copy_synced(entry.path(), fs::path(to) / name);
  }
  const fs::path templates = fs::path(from) / kTemplates;
  if (!fs::is_directory(templates)) return;
  fs::create_directory(fs::path(to) / kTemplates);
  for (const fs::directory_entry& entry : entries(templates)) {
    if (!entry.is_regular_file()) continue;
    copy_synced(entry.path(), fs::path(to) / kTemplates / entry.path().filename());
  }
}

}  // namespace weft::io
