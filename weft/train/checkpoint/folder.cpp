#include "weft/train/checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "weft/core/error.h"
#include "weft/train/checkpoint/manifest.h"

namespace weft::train {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
// As core::AtomicFolder names what is not finished.
constexpr std::string_view kUnfinished = ".tmp-";

std::string folder_of(const std::string& run) { return run + "/checkpoints"; }

std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kPrefix.size(), end, step);
  const bool is_number = result.ec == std::errc() && result.ptr == end && step >= 0;
  if (!is_number || name_of(step) != name) return std::nullopt;
  return step;
}

[[noreturn]] void fail(const std::string& path, const char* what, const std::error_code& error) {
  core::fail<core::IoError>(path, ": ", what, ": ", error.message());
}

std::vector<fs::path> entries(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  if (!fs::exists(folder, error)) return paths;
  fs::directory_iterator iterator(folder, error);
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) {
    paths.push_back(iterator->path());
  }
  if (error) fail(folder, "cannot list it", error);
  return paths;
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail(path.string(), "cannot remove it", error);
}

}  // namespace

std::string checkpoint_path(const std::string& run, int64_t step) {
  return folder_of(run) + "/" + name_of(step);
}

std::vector<int64_t> list_checkpoints(const std::string& run) {
  std::vector<int64_t> steps;
  for (const fs::path& path : entries(folder_of(run))) {
    std::error_code error;
    const auto step = step_of(path.filename().string());
    if (step && fs::is_regular_file(path / kManifestName, error)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> find_latest(const std::string& run) {
  const auto steps = list_checkpoints(run);
  if (steps.empty()) return std::nullopt;
  return checkpoint_path(run, steps.back());
}

void prepare_checkpoints(const std::string& run) {
  const std::string folder = folder_of(run);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, "cannot make it", error);
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kPrefix) && name.find(kUnfinished) != std::string::npos)
      remove_folder(path);
  }
}

void remove_oldest(const std::string& run, int64_t keep) {
  const auto steps = list_checkpoints(run);
  const auto num_kept = static_cast<size_t>(std::max<int64_t>(keep, 1));
  for (size_t i = 0; i + num_kept < steps.size(); ++i) {
    const std::string path = checkpoint_path(run, steps[i]);
    const std::string removed = core::join(path, kUnfinished, "removed");
    std::error_code error;
    fs::rename(path, removed, error);
    if (error) fail(path, "cannot rename it", error);
    remove_folder(removed);
  }
}

std::vector<std::string> set_aside_newer(const std::string& run, int64_t step) {
  std::vector<std::string> names;
  for (const int64_t newer : list_checkpoints(run)) {
    if (newer <= step) continue;
    std::string name = "left-" + name_of(newer);
    for (int i = 2; fs::exists(folder_of(run) + "/" + name); ++i) {
      name = core::join("left-", name_of(newer), "-", i);
    }
    std::error_code error;
    fs::rename(checkpoint_path(run, newer), folder_of(run) + "/" + name, error);
    if (error) fail(checkpoint_path(run, newer), "cannot rename it", error);
    names.push_back(name);
  }
  return names;
}

}  // namespace weft::train
