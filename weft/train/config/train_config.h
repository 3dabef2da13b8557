#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft::train {

/// [model]: which weights training starts from, or the sizes of a new model. Names are those of
/// Hugging Face's config.json.
struct ModelSection {
  /// Hugging Face folder or .gguf file whose weights training starts from; empty: a new model of
  /// what is below, `tokenizer` aside, which may not be given otherwise.
  std::string from;
  /// Folder, tokenizer.json or .gguf; empty: that of `from`, else the installed model's.
  std::string tokenizer;
  /// One of kNewFamilies (new_families.h).
  std::string family = "llama";
  /// Rows of the embedding; 0: the tokenizer's.
  int64_t vocab_size = 0;
  /// Width of the residual stream.
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  /// Query heads.
  int64_t num_heads = 0;
  /// Key and value heads; 0: as many as query heads.
  int64_t num_kv_heads = 0;
  /// Elements of a head; 0: hidden_size / num_heads.
  int64_t head_dim = 0;
  /// Width of the feed-forward layer; 0: 8/3 of hidden_size, rounded up to a multiple of 32.
  int64_t intermediate_size = 0;
  /// The longest sequence that the model is meant for; 0: batch.sequence_length.
  int64_t max_positions = 0;
  double rope_base = 10'000;
  double norm_eps = 1e-5;
  /// The output head is the embedding.
  bool tied = true;
  /// Standard deviation of new weights.
  double init_std = 0.02;
};

/// [mesh]: ranks on each axis. Flags --replicas, --dp, --tp and --pipe win over it.
struct MeshSection {
  /// Copies of the parameters; optimizer state is cut over them all the same.
  int64_t replicas = 1;
  /// Ranks that the parameters of a replica are cut over.
  int64_t dp = 1;
  /// Pipeline stages.
  int64_t pipe = 1;
  /// Layers of each stage; empty: balanced.
  std::vector<int64_t> pipe_layers = {};
  /// Ranks that every matrix is cut over.
  int64_t tp = 1;
  /// auto, shm, gloo, mpi, hierarchical or nccl.
  std::string backend = "auto";

  int64_t num_ranks() const { return replicas * dp * pipe * tp; }
  /// Ranks that get different sequences.
  int64_t num_data_ranks() const { return replicas * dp; }
};

/// [batch]: what a step sees.
struct BatchSection {
  /// Sequences of a step, over all ranks and microbatches.
  int64_t sequences = 0;
  /// Sequences that a data rank computes at once; 0: all that it has of a step.
  int64_t microbatch = 0;
  /// Tokens of a sequence.
  int64_t sequence_length = 0;
};

/// [train]
struct TrainSection {
  /// Optimizer steps.
  int64_t steps = 0;
  /// Of the initial weights, the order of the data and dropout.
  int64_t seed = 0;
  /// float32 or bfloat16: what is computed in; masters, sums and optimizer state are float32.
  std::string dtype = "float32";
  /// Keep a block's input alone and compute the block again in backward.
  bool checkpoint_activations = false;
  /// Rate at which elements of the embedding and of what layers add to the residual stream are
  /// dropped.
  double dropout = 0;
  /// Cut norms and the residual stream over the sequence, on the model axis.
  bool sequence_parallel = false;
  /// Longest gradient of all parameters together; 0: no limit.
  double clip_norm = 1.0;
  /// Parameters, losses and gradient norms with the same bits on every mesh and with any number of
  /// microbatches.
  bool exact = false;
  /// Per rank; 0: cores / ranks of this host.
  int64_t threads = 0;
};

/// [optimizer]
struct OptimizerSection {
  /// adamw, sgd, adafactor, lion or muon.
  std::string name = "adamw";
  /// The highest learning rate: what the schedule multiplies.
  double lr = 3e-4;
  /// Decay of the first and second moment.
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  /// Of sgd and muon.
  double momentum = 0.9;
  /// Decoupled: a step takes lr * weight_decay of the weight away.
  double weight_decay = 0.1;
  /// Parameters whose names match one of these patterns (* stands for anything) don't decay, beside
  /// vectors, which never do.
  std::vector<std::string> no_decay;
};

/// [schedule]: the learning rate over the steps.
struct ScheduleSection {
  /// constant, linear, cosine or wsd (warm up, stay, decay).
  std::string name = "cosine";
  /// Steps of the linear rise from 0.
  int64_t warmup_steps = 0;
  /// The last learning rate as a share of optimizer.lr.
  double min_lr = 0.1;
  /// Of wsd: steps of the fall at the end; 0: a tenth of all. The others fall from the warm-up's
  /// end to the last step.
  int64_t decay_steps = 0;
};

/// [data]
struct DataSection {
  /// Text and JSONL files, or folders of them.
  std::vector<std::string> train;
  /// The same for evaluation.
  std::vector<std::string> eval;
  /// Share of the training documents that is kept for evaluation when `eval` is empty; 0: none.
  double eval_fraction = 0;
  /// Put several documents into one sequence.
  bool pack = true;
  /// Attention does not look from one document of a sequence into another.
  bool respect_documents = true;
  /// Where tokenized files are kept; empty: beside checkpoints.
  std::string cache;
};

/// [eval]
struct EvalSection {
  /// Steps between evaluations; 0: none.
  int64_t every = 0;
  /// Sequences of an evaluation, at most; 0: all.
  int64_t sequences = 0;
};

/// [checkpoint]
struct CheckpointSection {
  /// The run's folder: checkpoints, metrics, event files.
  std::string folder;
  /// Steps between checkpoints; 0: only at the end.
  int64_t every = 0;
  /// How many are kept; 0: all.
  int64_t keep = 2;
  /// Write checkpoints while training continues.
  bool is_async = false;
  /// Steps that a crash may lose: rather than put more at risk, a run waits for the checkpoint that
  /// it is writing. 0 or less than `every`: as many as `every`.
  int64_t max_lost = 0;
};

/// [log]
struct LogSection {
  /// Steps between progress lines; metrics.jsonl has every step.
  int64_t every = 1;
  /// Write TensorBoard event files.
  bool tensorboard = true;
  /// Floating-point operations per second that a rank could do, which MFU is a share of; 0: what a
  /// large matrix product reaches when the run begins.
  double peak_flops = 0;
};

/// [lora], for `weft lora`.
struct LoraSection {
  int64_t rank = 8;
  /// The adapter's product is multiplied by alpha / rank.
  double alpha = 16;
  /// Which linear layers get an adapter, e.g. "q_proj".
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  /// Bits of the frozen weights, 2, 3, 4, 6 or 8; 0: as they are.
  int64_t quantize_bits = 0;
  /// Rate at which elements of the adapters' inputs are dropped.
  double dropout = 0;
  /// Cut the frozen weights over mesh.dp, too: 1/dp of their memory for their bytes over the wire.
  bool shard_frozen = true;
};

/// The configuration of a training run. Sections and keys of the TOML file are the names of the
/// members (`checkpoint.async` for is_async).
struct TrainConfig {
  ModelSection model;
  MeshSection mesh;
  BatchSection batch;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  DataSection data;
  EvalSection eval;
  CheckpointSection checkpoint;
  LogSection log;
  LoraSection lora;
  /// For messages: where each value that is not the default came from, by name: "mesh.tp" from
  /// "run.toml:3:6", "WEFT_TP" or "--tp".
  std::map<std::string, std::string> sources;

  /// True if the value was given and is not just the default.
  bool is_given(const std::string& name) const { return sources.contains(name); }
  /// "run.toml:3:6: mesh.tp", or just the name of one that was not given: begins messages.
  std::string where(const std::string& name) const;
};

}  // namespace weft::train
