#include "weft/train/checkpoint/writer.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/sized_file.h"
#include "weft/core/hash.h"
#include "weft/dist/launch/run_together.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/manifest.h"
#include "weft/train/gather_texts.h"
#include "weft/train/slice_runs.h"

namespace weft::train {
namespace {

// Elements that every rank of the model axis has, or several stages, are saved by the first; what
// belongs to the whole is saved with its first element.
bool is_saved(const StateTensor& tensor) {
  const Slice& slice = tensor.slice;
  if (slice.is_copy || slice.elements.length == 0) return false;
  if (!slice.cut && slice.model_rank != 0) return false;
  return !tensor.is_whole || slice_runs(slice).front().whole == 0;
}

core::ReplaceableFolder checkpoint_folder() {
  const auto is_part = [](const std::string& name) {
    return name == kManifestName || name.ends_with(".safetensors");
  };
  return {kManifestName, is_part, "remove it"};
}

std::string file_name(int64_t rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return name;
}

// One rank's file, from when its tensors are known until it is on disk.
class RankFile {
 public:
  // With `copies` the tensors may change after this.
  RankFile(const CheckpointContent& content, int64_t rank, bool copies) {
    manifest_.step = content.step;
    if (rank == 0) manifest_.trainer = content.trainer;
    SavedFile& file = manifest_.files.emplace_back();
    file.name = file_name(rank);
    std::map<std::string, size_t> by_name;
    for (const StateTensor& tensor : content.tensors) {
      if (!is_saved(tensor)) continue;
      const Slice& slice = tensor.slice;
      manifest_.parameters[slice.name] = {slice.sizes, slice.cut};
      const auto [place, is_new] = by_name.emplace(slice.name, file.slices.size());
      if (is_new) file.slices.push_back({slice.name, slice.model_rank, slice.elements, {}, {}});
      SavedSlice& saved = file.slices[place->second];
      (tensor.is_whole ? saved.whole_states : saved.states).push_back(tensor.state);
      specs_.push_back({slice.name + "/" + tensor.state, io::Dtype::kF32, {tensor.values.numel()}});
      values_.push_back(copies ? tensor.values.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true)
                               : tensor.values);
    }
  }

  // Returns this rank's part of the manifest.
  std::string write(const std::string& folder) {
    SavedFile& saved = manifest_.files[0];
    const std::string path = folder + "/" + saved.name;
    const io::SafetensorsHead head = io::safetensors_head(path, specs_, {});
    core::SizedFile file = core::SizedFile::create(path, head.num_bytes);
    core::HashStream hash;
    uint64_t at = 0;
    const auto append = [&](std::span<const std::byte> bytes) {
      file.write_at(at, bytes);
      hash.add(bytes);
      at += bytes.size();
    };
    append(std::as_bytes(std::span(head.bytes)));
    for (const size_t index : head.order) {
      const at::Tensor values = values_[index].cpu().contiguous();
      append(std::as_bytes(
          std::span(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()))));
    }
    file.sync();
    saved.num_bytes = head.num_bytes;
    saved.hash = hash.value();
    return to_text(manifest_);
  }

 private:
  Manifest manifest_;
  std::vector<io::TensorSpec> specs_;
  std::vector<at::Tensor> values_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string run, CheckpointOptions options,
                                   const dist::Group& group)
    : run_(std::move(run)), options_(options), group_(group) {}

void CheckpointWriter::begin(const CheckpointContent& content) {
  finish();
  dist::run_together(group_, [&] {
    if (group_.rank() != 0) return;
    prepare_checkpoints(run_);
    folder_.emplace(checkpoint_path(run_, content.step), true, checkpoint_folder());
  });
  const std::string folder = gather_texts(group_, folder_ ? folder_->temporary_path() : "")[0];
  std::shared_ptr<RankFile> file;
  dist::run_together(group_, [&] {
    file = std::make_shared<RankFile>(content, group_.rank(), options_.in_background);
  });
  const auto policy = options_.in_background ? std::launch::async : std::launch::deferred;
  written_ = std::async(policy, [file, folder] { return file->write(folder); });
  if (!options_.in_background) finish();
}

bool CheckpointWriter::has_written() const {
  return written_.valid() &&
         written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointWriter::finish() {
  if (!written_.valid()) return;
  try {
    std::string part;
    dist::run_together(group_, [&] { part = written_.get(); });
    const std::vector<std::string> parts = gather_texts(group_, part);
    dist::run_together(group_, [&] {
      if (group_.rank() == 0) commit(parts);
    });
  } catch (...) {
    folder_.reset();
    throw;
  }
  folder_.reset();
}

void CheckpointWriter::commit(const std::vector<std::string>& parts) {
  Manifest manifest;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    Manifest part = parse_manifest(parts[rank], core::join("train.save_checkpoint: rank ", rank));
    if (rank == 0) {
      manifest = std::move(part);
    } else {
      add_part(manifest, part);
    }
  }
  const std::string text = to_text(manifest);
  core::write_file_atomically(folder_->temporary_path() + "/" + kManifestName, text);
  folder_->commit();
  remove_oldest(run_, options_.keep);
}

void save_checkpoint(const std::string& run, const CheckpointContent& content, int64_t keep,
                     const dist::Group& group) {
  CheckpointWriter(run, {keep, false}, group).begin(content);
}

}  // namespace weft::train
