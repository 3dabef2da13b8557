#include <filesystem>

#include "weft/models/config/sources.h"

namespace weft::models {

std::string folder_of(const io::TensorFile& file) {
  const std::filesystem::path path(file.path());
  if (std::filesystem::is_directory(path)) return path.string();
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

}  // namespace weft::models
