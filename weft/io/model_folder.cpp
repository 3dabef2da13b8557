#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/sources.h"

namespace weft::io {

using core::check;
using core::FormatError;

namespace {

namespace fs = std::filesystem;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "…-00002-of-00003.gguf", which is opened with its first part.
bool is_later_part(const std::string& name) {
  constexpr size_t kEnding = std::string_view("-00002-of-00003.gguf").size();
  if (name.size() < kEnding) return false;
  const std::string ending = name.substr(name.size() - kEnding);
  const std::string number = ending.substr(1, 5);
  return ending[0] == '-' && ending.compare(6, 4, "-of-") == 0 &&
         std::all_of(number.begin(), number.end(), is_digit) && number != "00001";
}

std::vector<std::string> file_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) core::fail_errno(folder, "cannot list the folder", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> ending_in(const std::vector<std::string>& names, const char* ending) {
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    if (name.ends_with(ending) && !is_later_part(name)) chosen.push_back(name);
  }
  return chosen;
}

}  // namespace

std::string find_model_file(const std::string& folder) {
  const std::vector<std::string> names = file_names(folder);
  for (const char* usual : {"model.safetensors.index.json", "model.safetensors",
                            "tensor-cache.json", "ndarray-cache.json"}) {
    if (std::binary_search(names.begin(), names.end(), usual)) {
      return (fs::path(folder) / usual).string();
    }
  }
  for (const char* ending : {".safetensors.index.json", ".safetensors", ".gguf"}) {
    const std::vector<std::string> found = ending_in(names, ending);
    check<FormatError>(found.size() <= 1, folder, ": ", found.size(), " files end in ", ending,
                       ", expected one; give the path of one of them");
    if (found.size() == 1) return (fs::path(folder) / found[0]).string();
  }
  core::fail<FormatError>(folder,
                          ": no model file, expected model.safetensors, its index.json, one "
                          "*.safetensors or one *.gguf; give a model's folder");
}

}  // namespace weft::io
