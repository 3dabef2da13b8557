#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "weft/core/error.h"
#include "weft/io/sources.h"
#include "weft/io/tensor_file_builder.h"

namespace weft::io {

using core::check;
using core::FormatError;

namespace {

using Metadata = std::map<std::string, MetaValue>;

// The longest "-00001-of-00003.gguf" part count that the name has room for.
constexpr int64_t kMaxParts = 99'999;

// An integer key of either sign, or nothing if it is absent.
std::optional<int64_t> find_integer(const std::string& path, const Metadata& metadata,
                                    const std::string& key) {
  const auto entry = metadata.find(key);
  if (entry == metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<int64_t>(&entry->second)) return *value;
  const auto* value = std::get_if<uint64_t>(&entry->second);
  check<FormatError>(value != nullptr && *value <= INT64_MAX, path, ": key '", key,
                     "': expected an integer; convert the model again");
  return static_cast<int64_t>(*value);
}

std::string part_ending(int64_t number, int64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(number),
                static_cast<int>(count));
  return text;
}

void check_part(const std::string& path, const Metadata& metadata, int64_t number, int64_t count) {
  const auto part_count = find_integer(path, metadata, "split.count");
  check<FormatError>(part_count == count, path, ": split.count ", part_count.value_or(0),
                     ", expected ", count, "; use the parts of one model");
  const auto part_number = find_integer(path, metadata, "split.no");
  check<FormatError>(part_number == number, path, ": split.no ", part_number.value_or(-1),
                     ", expected ", number, "; give the parts their own names back");
}

std::shared_ptr<const TensorFile> open_parts(const std::string& path, const std::string& file_path,
                                             int64_t number, int64_t count,
                                             std::optional<int64_t> num_tensors) {
  const std::string ending = part_ending(number + 1, count);
  check<FormatError>(number >= 0 && number < count && file_path.ends_with(ending), file_path,
                     ": part ", number, " of ", count, ", expected a name that ends in ", ending,
                     "; give the file its own name back");
  const std::string stem = file_path.substr(0, file_path.size() - ending.size());
  TensorFileBuilder builder(path);
  for (int64_t i = 0; i < count; ++i) {
    const std::string part = stem + part_ending(i + 1, count);
    std::error_code error;
    check<FormatError>(std::filesystem::exists(part, error), file_path, ": part ", part,
                       " is missing; fetch all ", count, " parts");
    check_part(part, builder.add_file(part), i, count);
  }
  const auto got = static_cast<int64_t>(builder.tensors().size());
  check<FormatError>(num_tensors.value_or(got) == got, file_path, ": ", got,
                     " tensors in all parts, expected split.tensors.count ",
                     num_tensors.value_or(0), "; fetch the parts again");
  return builder.finish();
}

}  // namespace

std::shared_ptr<const TensorFile> open_file(const std::string& path, const std::string& file_path) {
  TensorFileBuilder builder(path);
  builder.add_file(file_path);
  auto source = builder.finish();
  if (!source->is_gguf()) return source;
  const int64_t count = find_integer(file_path, source->metadata(), "split.count").value_or(1);
  if (count <= 1) return source;
  check<FormatError>(count <= kMaxParts, file_path, ": split.count ", count, ", expected at most ",
                     kMaxParts, "; convert the model again");
  const int64_t number = find_integer(file_path, source->metadata(), "split.no").value_or(-1);
  return open_parts(path, file_path, number, count,
                    find_integer(file_path, source->metadata(), "split.tensors.count"));
}

}  // namespace weft::io
