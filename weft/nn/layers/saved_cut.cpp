#include "weft/nn/layers/saved_cut.h"

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <string>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

using core::check;
using core::FormatError;

constexpr char kCutKey[] = "weft_cut";
constexpr char kRemedy[] =
    "give each rank the file that it wrote, on as many ranks, or save the whole after unshard() "
    "and cut after loading";

std::string cut_text(const SavedCut& cut) {
  std::string text = core::join("rank ", cut.group.rank(), " of ", cut.group.size(), ", ",
                                cut.layout.dim == 0 ? "rows" : "columns");
  const char* separator = " ";
  for (const shard::Range& range : cut.layout.of(cut.group.rank())) {
    text += core::join(separator, range.start, " to ", range.end() - 1);
    separator = ", ";
  }
  return text + core::join(" of ", cut.layout.size);
}

std::string tensor_text(const at::Tensor& x) {
  return core::join(core::list_text(x.sizes()), " of ", x.scalar_type());
}

void check_tensor(torch::serialize::InputArchive& archive, const std::string& name,
                  const at::Tensor& own, bool is_buffer, const char* where) {
  at::Tensor saved;
  check<FormatError>(archive.try_read(name, saved, is_buffer), where,
                     ".load: the file has no tensor ", name, ", expected ", tensor_text(own),
                     "; load it into the kind of layer that was saved");
  check<FormatError>(saved.sizes() == own.sizes() && saved.scalar_type() == own.scalar_type(),
                     where, ".load: the file has ", name, " ", tensor_text(saved), ", expected ",
                     tensor_text(own), "; load it into a layer like the one that was saved");
}

}  // namespace

void save_cut(torch::serialize::OutputArchive& archive, const SavedCut& cut) {
  archive.write(kCutKey, c10::IValue(cut_text(cut)));
}

void check_saved_cut(torch::serialize::InputArchive& archive, const std::optional<SavedCut>& cut,
                     const char* where) {
  c10::IValue saved;
  const bool is_cut = archive.try_read(kCutKey, saved) && saved.isString();
  const std::string found = is_cut ? saved.toStringRef() : "a layer that is not cut";
  const std::string expected = cut ? cut_text(*cut) : "a layer that is not cut";
  check<FormatError>(found == expected, where, ".load: the file has ", found, ", expected ",
                     expected, "; ", kRemedy);
}

void check_saved_tensors(torch::serialize::InputArchive& archive, const torch::nn::Module& module,
                         const char* where) {
  for (const auto& item : module.named_parameters(false)) {
    check_tensor(archive, item.key(), item.value(), false, where);
  }
  for (const auto& item : module.named_buffers(false)) {
    check_tensor(archive, item.key(), item.value(), true, where);
  }
}

}  // namespace weft::nn
