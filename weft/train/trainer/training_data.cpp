#include "weft/train/trainer/training_data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/dist/launch/run_together.h"
#include "weft/train/config/check_config.h"
#include "weft/train/data/documents.h"
#include "weft/train/data/store/build_store.h"
#include "weft/train/trainer/run_tokenizer.h"

namespace weft::train {
namespace {

std::string store_path(const TrainConfig& config, const char* name) {
  const std::filesystem::path folder =
      config.data.cache.empty() ? std::filesystem::path(config.checkpoint.folder) / "data"
                                : std::filesystem::path(config.data.cache);
  return (folder / name).string();
}

// Rank 0 makes it if it must be made.
std::shared_ptr<const TokenStore> open_store(const std::vector<std::string>& sources,
                                             const std::string& path,
                                             const DocumentTokenizer& tokenizer,
                                             const dist::Group& all) {
  StoreOptions options;
  options.sources = list_sources(sources);
  options.path = path;
  dist::run_together(all, [&] {
    if (all.rank() != 0) return;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    open_or_build(options, tokenizer);
  });
  return TokenStore::open(path);
}

Packing packing_of(const DataSection& data) {
  if (!data.pack) return Packing::kAlone;
  return data.respect_documents ? Packing::kWithin : Packing::kThrough;
}

// Where each document is a sequence, the ends of long ones are never learned, nor measured.
void warn_of_cut(const TrainConfig& config, const Packer& packer, const char* whose) {
  const int64_t cut = packer.num_cut();
  if (cut == 0) return;
  core::log(core::LogLevel::kWarn, config.where("data.pack"), ": ", cut, " of ",
            packer.num_sequences(), " documents ", whose, " are longer than batch.sequence_length ",
            packer.length(), "; their ends are left out");
}

at::Tensor tensor_of(const std::vector<int64_t>& values, const Rows& rows) {
  return at::tensor(values, at::kLong).view({rows.count, rows.length});
}

}  // namespace

TrainingData::TrainingData(const TrainConfig& config, const std::string& tokenizer_path,
                           const dist::Group& all, const dist::Group& batch)
    : config_(config), batch_rank_(batch.rank()), batch_size_(batch.size()) {
  const DocumentTokenizer tokenizer = open_run_tokenizer(tokenizer_path);
  vocab_size_ = static_cast<int64_t>(tokenizer.tokenizer().vocab_size());
  PackOptions packing;
  packing.length = config.batch.sequence_length;
  packing.packing = packing_of(config.data);
  const auto store =
      open_store(config.data.train, store_path(config, "train.tokens"), tokenizer, all);
  shard::Range range = all_tokens(*store);
  if (!config.data.eval.empty()) {
    const auto eval =
        open_store(config.data.eval, store_path(config, "eval.tokens"), tokenizer, all);
    evaluation_.emplace(eval, packing, all_tokens(*eval));
  } else if (config.data.eval_fraction > 0) {
    const auto parts = split_tokens(*store, config.data.eval_fraction, packing.packing);
    range = parts.first;
    evaluation_.emplace(store, packing, parts.second);
  }
  train_.emplace(store, packing, range, static_cast<uint64_t>(config.train.seed));
  identity_ = store->identity();
  if (all.rank() != 0) return;
  warn_of_cut(config, train_->packer(), "to train on");
  if (evaluation_) warn_of_cut(config, evaluation_->packer(), "to evaluate with");
}

Microbatch TrainingData::rows(const Batches& batches, int64_t first, int64_t count) const {
  Rows rows;
  batches.fill(first, count, rows);
  Microbatch microbatch;
  microbatch.tokens.ids_BT = tensor_of(rows.ids, rows);
  if (packing_of(config_.data) == Packing::kWithin) {
    microbatch.tokens.documents_BT = tensor_of(rows.documents, rows);
    microbatch.tokens.positions_BT = tensor_of(rows.positions, rows);
  }
  microbatch.targets_BT = tensor_of(rows.targets, rows);
  microbatch.num_targets = rows.num_targets;
  return microbatch;
}

std::vector<Microbatch> TrainingData::microbatches(int64_t first_sample) const {
  const BatchPlan plan = plan_batch(config_);
  std::vector<Microbatch> all;
  const int64_t first = first_sample + batch_rank_ * plan.sequences_per_rank;
  for (int64_t m = 0; m < plan.num_microbatches; ++m) {
    const int64_t start = first + m * plan.microbatch;
    all.push_back(rows(*train_, start, plan.microbatch));
    all.back().tokens.first_token = (start - first_sample) * config_.batch.sequence_length;
  }
  return all;
}

// Ranks take turns; those that get nothing in the last round compute a sequence without targets.
std::vector<Microbatch> TrainingData::evaluation() const {
  std::vector<Microbatch> all;
  if (!evaluation_.has_value()) return all;
  const int64_t wanted = config_.eval.sequences;
  const int64_t count =
      wanted == 0 ? evaluation_->num_sequences() : std::min(wanted, evaluation_->num_sequences());
  const int64_t size = std::max<int64_t>(1, plan_batch(config_).microbatch);
  for (int64_t start = 0; start < count; start += size * batch_size_) {
    const int64_t first = start + batch_rank_ * size;
    const int64_t here = std::clamp<int64_t>(count - first, 0, size);
    Microbatch part = rows(*evaluation_, here > 0 ? first : 0, std::max<int64_t>(here, 1));
    if (here == 0) {
      part.targets_BT.fill_(kIgnoredTarget);
      part.num_targets = 0;
    }
    all.push_back(std::move(part));
  }
  return all;
}

}  // namespace weft::train
