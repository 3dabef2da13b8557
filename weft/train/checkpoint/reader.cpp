#include "weft/train/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/io/formats/safetensors.h"
#include "weft/train/slice_runs.h"

namespace weft::train {

using core::check;
using core::FormatError;
using core::quote;

namespace {

// Runs closer than this are read with what lies between them, up to a span.
constexpr uint64_t kMaxGap = 64 * 1024;
constexpr uint64_t kMaxSpan = uint64_t{8} << 20;
constexpr size_t kHashBytes = size_t{4} << 20;

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& folder)
    : folder_(folder), manifest_(read_manifest(folder)) {
  for (size_t file = 0; file < manifest_.files.size(); ++file) {
    const auto& slices = manifest_.files[file].slices;
    for (size_t slice = 0; slice < slices.size(); ++slice) {
      places_[slices[slice].name].push_back({file, slice});
    }
  }
}

const SavedParameter& CheckpointReader::parameter(const std::string& name) const {
  const auto found = manifest_.parameters.find(name);
  check<FormatError>(found != manifest_.parameters.end(), folder_, ": no parameter ", quote(name),
                     "; it is of another model");
  return found->second;
}

void CheckpointReader::check_file(size_t index, bool hashes) const {
  const SavedFile& saved = manifest_.files.at(index);
  const core::File file(folder_ + "/" + saved.name);
  check<FormatError>(file.size() == saved.num_bytes, file.path(), ": expected ", saved.num_bytes,
                     " bytes, got ", file.size(), "; take another checkpoint");
  if (!hashes) return;
  std::vector<std::byte> buffer(std::min<uint64_t>(kHashBytes, saved.num_bytes));
  core::HashStream hash;
  for (uint64_t offset = 0; offset < saved.num_bytes;) {
    const auto piece =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), saved.num_bytes - offset));
    file.read_at(offset, piece);
    hash.add(piece);
    offset += piece.size();
  }
  check<FormatError>(hash.value() == saved.hash, file.path(),
                     ": its bytes are not those that were saved (hash); take another checkpoint");
}

void CheckpointReader::check_files() const {
  for (size_t i = 0; i < manifest_.files.size(); ++i) check_file(i, true);
}

const CheckpointReader::OpenFile& CheckpointReader::open(size_t index) {
  std::unique_ptr<OpenFile>& place = files_[index];
  if (place) return *place;
  check_file(index, false);
  auto opened = std::make_unique<OpenFile>(
      OpenFile{core::File(folder_ + "/" + manifest_.files.at(index).name), {}});
  for (const io::TensorMeta& tensor : io::read_safetensors_header(opened->file, 0).tensors) {
    check<FormatError>(tensor.dtype == io::Dtype::kF32 && tensor.shape.size() == 1,
                       opened->file.path(), ": tensor ", quote(tensor.name),
                       ": expected float32 of one dim");
    opened->tensors[tensor.name] = {tensor.offset, tensor.shape[0]};
  }
  place = std::move(opened);
  return *place;
}

uint64_t CheckpointReader::find_tensor(size_t file, const std::string& name, int64_t length) {
  const OpenFile& opened = open(file);
  const auto found = opened.tensors.find(name);
  check<FormatError>(found != opened.tensors.end(), opened.file.path(), ": no tensor ", quote(name),
                     ", which ", kManifestName, " says is there");
  check<FormatError>(found->second.second == length, opened.file.path(), ": tensor ", quote(name),
                     ": expected ", length, " values, got ", found->second.second);
  return found->second.first;
}

void CheckpointReader::fail_missing(const std::string& state, const std::string& name,
                                    int64_t element) const {
  std::set<std::string> states;
  const auto places = places_.find(name);
  if (places != places_.end()) {
    for (const Place& place : places->second) {
      const SavedSlice& saved = manifest_.files[place.file].slices[place.slice];
      states.insert(saved.states.begin(), saved.states.end());
      states.insert(saved.whole_states.begin(), saved.whole_states.end());
    }
  }
  std::string text;
  for (const std::string& each : states) text += (text.empty() ? "" : ", ") + each;
  check<FormatError>(states.count(state) == 1, folder_, ": parameter ", quote(name), ": no ", state,
                     ", it has ", text.empty() ? "nothing" : text,
                     "; use the optimizer that it was saved with");
  core::fail<FormatError>(folder_, ": parameter ", quote(name), ": no file has element ", element,
                          " of its ", state, "; take another checkpoint");
}

std::vector<CheckpointReader::Copy> CheckpointReader::plan(const std::string& state,
                                                           const Slice& wanted) {
  std::vector<Copy> copies;
  std::vector<SliceRun> missing = slice_runs(wanted);
  for (const Place& place : places_[wanted.name]) {
    if (missing.empty()) break;
    const SavedSlice& saved = manifest_.files[place.file].slices[place.slice];
    if (!has(saved.states, state)) continue;
    const auto shared = take_runs(missing, slice_runs(manifest_.slice(saved)));
    if (shared.empty()) continue;
    const uint64_t start =
        find_tensor(place.file, wanted.name + "/" + state, saved.elements.length);
    for (const SharedRun& run : shared) {
      copies.push_back({place.file, start + static_cast<uint64_t>(run.held) * sizeof(float),
                        run.wanted, run.length});
    }
  }
  if (!missing.empty()) fail_missing(state, wanted.name, missing.front().whole);
  return copies;
}

void CheckpointReader::read(const std::string& state, const Slice& wanted,
                            std::span<float> values) {
  check_slice(wanted, "train.load_checkpoint: " + wanted.name);
  check<core::InternalError>(static_cast<int64_t>(values.size()) == wanted.elements.length,
                             "train.load_checkpoint: ", wanted.name, ": ", values.size(),
                             " values for ", wanted.elements.length, " elements");
  const SavedParameter& saved = parameter(wanted.name);
  check<FormatError>(saved.sizes == wanted.sizes, folder_, ": parameter ", quote(wanted.name),
                     ": saved as ", core::list_text(saved.sizes), ", the model's is ",
                     core::list_text(wanted.sizes), "; it is of another model");
  copy(plan(state, wanted), values);
}

void CheckpointReader::read_whole_state(const std::string& state, const std::string& name,
                                        std::span<float> values) {
  parameter(name);
  for (const Place& place : places_[name]) {
    if (!has(manifest_.files[place.file].slices[place.slice].whole_states, state)) continue;
    const auto length = static_cast<int64_t>(values.size());
    copy({{place.file, find_tensor(place.file, name + "/" + state, length), 0, length}}, values);
    return;
  }
  fail_missing(state, name, 0);
}

// Short runs by way of a buffer, in few reads; long ones straight to their place.
void CheckpointReader::copy(std::vector<Copy> copies, std::span<float> values) {
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  const auto end_of = [](const Copy& c) {
    return c.offset + static_cast<uint64_t>(c.length) * sizeof(float);
  };
  for (size_t first = 0; first < copies.size();) {
    size_t last = first + 1;
    for (; last < copies.size(); ++last) {
      const Copy& next = copies[last];
      if (next.file != copies[first].file || next.offset > end_of(copies[last - 1]) + kMaxGap ||
          end_of(next) - copies[first].offset > kMaxSpan) {
        break;
      }
    }
    read_span(std::span(copies).subspan(first, last - first),
              end_of(copies[last - 1]) - copies[first].offset, values);
    first = last;
  }
}

void CheckpointReader::read_span(std::span<const Copy> copies, uint64_t num_bytes,
                                 std::span<float> values) {
  const core::File& file = open(copies[0].file).file;
  const auto place = [&](const Copy& c) {
    return std::as_writable_bytes(
        values.subspan(static_cast<size_t>(c.destination), static_cast<size_t>(c.length)));
  };
  if (copies.size() == 1) {
    file.read_at(copies[0].offset, place(copies[0]));
    return;
  }
  buffer_.resize(num_bytes);
  file.read_at(copies[0].offset, buffer_);
  for (const Copy& each : copies) {
    const auto to = place(each);
    std::memcpy(to.data(), buffer_.data() + (each.offset - copies[0].offset), to.size());
  }
}

}  // namespace weft::train
