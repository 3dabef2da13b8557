#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/train/config/train_config.h"
#include "weft/train/data/batches.h"
#include "weft/train/trainer/train_step.h"

namespace weft::train {

/// A run's sequences as tensors: those of this rank, alike on all ranks of its model axis.
class TrainingData {
 public:
  /// Tokenizes what was not yet, on rank 0 of `all` while the others wait, and opens it. `batch` is
  /// the group over replica and data. Rank 0 warns of documents that are cut (Packing::kAlone).
  /// Collective over `all`; throws alike on all its ranks.
  TrainingData(const TrainConfig& config, const std::string& tokenizer_path, const dist::Group& all,
               const dist::Group& batch);

  /// Rows of the embedding that the data need.
  int64_t vocab_size() const { return vocab_size_; }
  /// Sequences of an epoch.
  int64_t num_sequences() const { return train_->num_sequences(); }
  /// Equal for the same tokens in the same order.
  uint64_t identity() const { return identity_; }

  /// This rank's part of the step whose samples begin at `first_sample` of the run.
  std::vector<Microbatch> microbatches(int64_t first_sample) const;
  bool has_evaluation() const { return evaluation_.has_value(); }
  /// This rank's part of the evaluation; as many microbatches on every rank, some may be without
  /// targets.
  std::vector<Microbatch> evaluation() const;

 private:
  Microbatch rows(const Batches& batches, int64_t first, int64_t count) const;

  TrainConfig config_;
  int64_t batch_rank_;
  int64_t batch_size_;
  int64_t vocab_size_ = 0;
  uint64_t identity_ = 0;
  std::optional<Batches> train_;
  std::optional<Batches> evaluation_;
};

}  // namespace weft::train
