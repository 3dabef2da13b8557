#pragma once

#include "weft/cli/options.h"
#include "weft/dist/launch/launch.h"

namespace weft::cli {

/// What verbs do, each in its own file. All return the exit code and throw core::Error. These need
/// no libtorch:
int run_tokenize(const TokenizeOptions& options);
int run_plan(const PlanOptions& options);
int run_plot(const PlotVerbOptions& options);
int run_completion(const CompletionOptions& options);

/// These do:
int run_chat(const ChatOptions& options);
int run_generate(const GenerateVerbOptions& options);
int run_serve(const ServeVerbOptions& options);
int run_batch(const BatchVerbOptions& options);
int run_logits(const LogitsOptions& options);
int run_bench(const BenchOptions& options);
int run_perplexity(const PerplexityVerbOptions& options);
int run_quantize(const QuantizeOptions& options);
int run_imatrix(const ImatrixOptions& options);
int run_convert(const ConvertOptions& options);
int run_shard(const ShardOptions& options);
int run_fuse(const FuseOptions& options);
int run_inspect(const InspectOptions& options);
int run_doctor(const DoctorOptions& options);
/// Of `weft train` and `weft lora`.
int run_train(const TrainOptions& options);
int run_launch(const dist::LaunchOptions& options);

}  // namespace weft::cli
