#include "weft/cli/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// "org/name@revision:tag" in parts.
struct HubName {
  std::string repository, revision = "main", tag;
};

bool is_word(std::string_view text) {
  return !text.empty() && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

std::optional<HubName> parse_name(const std::string& text) {
  HubName name;
  const size_t colon = std::min(text.find(':'), text.size());
  if (colon < text.size()) name.tag = text.substr(colon + 1);
  name.repository = text.substr(0, colon);
  if (const size_t at = name.repository.find('@'); at != std::string::npos) {
    name.revision = name.repository.substr(at + 1);
    name.repository.resize(at);
  }
  const size_t slash = name.repository.find('/');
  if (slash == std::string::npos || !is_word(name.revision)) return std::nullopt;
  const std::string_view whole(name.repository);
  if (!is_word(whole.substr(0, slash)) || !is_word(whole.substr(slash + 1))) return std::nullopt;
  return name;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path cache_folder() {
  if (const std::string own = variable("HF_HUB_CACHE"); !own.empty()) return own;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string caches = variable("XDG_CACHE_HOME");
  const fs::path base = caches.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(caches);
  return base / "huggingface" / "hub";
}

// A revision is the name of a file that holds a commit, or a commit.
fs::path snapshot_of(const fs::path& repository, const std::string& revision) {
  constexpr uint64_t kMostBytes = 1024;
  const fs::path reference = repository / "refs" / revision;
  std::string commit = revision;
  if (fs::exists(reference)) commit = core::read_text_file(reference.string(), kMostBytes);
  while (commit.ends_with('\n')) commit.pop_back();
  return is_word(commit) ? repository / "snapshots" / commit : fs::path();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Files that may be meant; of a model in several files the first.
std::vector<std::string> gguf_files(const fs::path& snapshot, const std::string& tag) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(snapshot)) {
    const std::string name = entry.path().filename().string();
    const bool is_later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    const bool is_meant = name.ends_with(".gguf") && !name.starts_with("mmproj") &&
                          !is_later_part && lower(name).find(lower(tag)) != std::string::npos;
    if (is_meant) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string path_in_hub_cache(const std::string& text) {
  std::error_code error;
  const auto name = parse_name(text);
  if (!name.has_value() || fs::exists(text, error)) return text;
  std::string folder = "models--" + name->repository;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path snapshot = snapshot_of(cache_folder() / folder, name->revision);
  if (snapshot.empty() || !fs::is_directory(snapshot, error)) return text;
  if (name->tag.empty() && fs::exists(snapshot / "config.json")) return snapshot.string();
  const std::vector<std::string> names = gguf_files(snapshot, name->tag);
  std::string list;
  for (const std::string& each : names) list += (list.empty() ? "" : ", ") + each;
  core::check<core::ConfigError>(names.size() == 1, "MODEL: ", core::quote(text),
                                 ": expected one GGUF file or config.json in ", snapshot.string(),
                                 ", got ", names.empty() ? "neither" : list,
                                 "; name a file, or one of several as ORG/NAME:TAG");
  return (snapshot / names.front()).string();
}

}  // namespace weft::cli
