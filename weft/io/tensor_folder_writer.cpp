#include "weft/io/tensor_folder_writer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/hash.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

using core::check;

namespace {

constexpr size_t kReadBytes = size_t{4} << 20;

uint64_t data_bytes(const TensorSpec& tensor) {
  return tensor_bytes(tensor.dtype, tensor.shape).value_or(0);
}

std::string file_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

std::string path_in(const std::string& folder, const std::string& name) {
  return folder + "/" + name;
}

void check_tensor(const TensorFile& written, const TensorSpec& tensor) {
  const TensorMeta& meta = written.require(tensor.name);
  check<core::IoError>(meta.dtype == tensor.dtype && meta.shape == tensor.shape, written.path(),
                       ": tensor ", core::quote(tensor.name), " is ", info(meta.dtype).name, " ",
                       core::list_text(meta.shape), ", expected ", info(tensor.dtype).name, " ",
                       core::list_text(tensor.shape), "; write it again");
}

uint64_t hash_of_file(const core::File& file, uint64_t offset, uint64_t num_bytes) {
  std::vector<std::byte> buffer(std::min<uint64_t>(num_bytes, kReadBytes));
  uint64_t hash = core::hash_bytes({});
  while (num_bytes > 0) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(num_bytes, buffer.size()));
    file.read_at(offset, piece);
    hash = core::hash_bytes(piece, hash);
    offset += piece.size();
    num_bytes -= piece.size();
  }
  return hash;
}

}  // namespace

std::vector<OutputFile> spread_over_files(const std::vector<TensorSpec>& tensors,
                                          uint64_t max_bytes,
                                          const std::map<std::string, std::string>& metadata) {
  std::vector<OutputFile> files(1);
  uint64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t size = data_bytes(tensor);
    if (!files.back().tensors.empty() && size > max_bytes - std::min(bytes, max_bytes)) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(tensor);
    bytes += size;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = file_name(i, files.size());
    files[i].metadata = metadata;
  }
  return files;
}

TensorFolderWriter::TensorFolderWriter(const std::string& folder, std::vector<OutputFile> files,
                                       Role role)
    : folder_(folder), files_(std::move(files)) {
  for (size_t i = 0; i < files_.size(); ++i) {
    const std::string path = path_in(folder_, files_[i].name);
    const SafetensorsHead head = safetensors_head(path, files_[i].tensors, files_[i].metadata);
    for (size_t t = 0; t < files_[i].tensors.size(); ++t) {
      const TensorSpec& tensor = files_[i].tensors[t];
      const Place place = {i, head.offsets[t], data_bytes(tensor)};
      check<core::ConfigError>(places_.emplace(tensor.name, place).second, path, ": tensor ",
                               core::quote(tensor.name), " is in two files; rename one");
    }
    const bool lays_out = role == Role::kLaysOut;
    open_files_.push_back(lays_out ? core::SizedFile::create(path, head.num_bytes)
                                   : core::SizedFile::open(path, head.num_bytes));
    if (lays_out) write_file(i, 0, std::as_bytes(std::span(head.bytes)));
  }
  if (role == Role::kLaysOut && files_.size() > 1) write_index();
}

void TensorFolderWriter::write_index() const {
  uint64_t total = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const auto& [name, place] : places_) {
    total += place.num_bytes;
    weight_map[name] = files_[place.file].name;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}},
                                {"weight_map", std::move(weight_map)}};
  const std::string text = index.dump(2) + "\n";
  core::write_file_atomically(path_in(folder_, "model.safetensors.index.json"), text);
}

void TensorFolderWriter::write_file(size_t file, uint64_t offset,
                                    std::span<const std::byte> bytes) {
  open_files_[file].write_at(offset, bytes);
  written_.push_back({file, offset, bytes.size(), core::hash_bytes(bytes)});
}

void TensorFolderWriter::write(const std::string& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
  const auto found = places_.find(tensor);
  check<core::InternalError>(found != places_.end() && offset <= found->second.num_bytes &&
                                 bytes.size() <= found->second.num_bytes - offset,
                             folder_, ": ", bytes.size(), " bytes at ", offset, " of tensor ",
                             core::quote(tensor), ", which has no such place");
  write_file(found->second.file, found->second.offset + offset, bytes);
}

void TensorFolderWriter::sync() {
  for (core::SizedFile& file : open_files_) file.sync();
}

void TensorFolderWriter::verify() const {
  const auto written =
      TensorFile::open(files_.size() == 1 ? path_in(folder_, files_[0].name)
                                          : path_in(folder_, "model.safetensors.index.json"));
  check<core::IoError>(written->tensors().size() == places_.size(), folder_, ": ",
                       written->tensors().size(), " tensors, expected ", places_.size(),
                       "; write it again");
  std::vector<core::File> files;
  for (const OutputFile& file : files_) {
    for (const TensorSpec& tensor : file.tensors) check_tensor(*written, tensor);
    files.emplace_back(path_in(folder_, file.name));
  }
  for (const Written& piece : written_) {
    check<core::IoError>(
        hash_of_file(files[piece.file], piece.offset, piece.num_bytes) == piece.hash,
        files[piece.file].path(), ": ", piece.num_bytes, " bytes from ", piece.offset,
        " are not what was written; check the disk and write it again");
  }
}

}  // namespace weft::io
