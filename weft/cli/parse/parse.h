#pragma once

#include <optional>

#include "weft/cli/options.h"
#include "weft/dist/launch/launch.h"

namespace weft::cli {

/// What the arguments of a verb ask for; none if they asked for help, which is then printed.
/// Each throws ConfigError for arguments that are refused before a model is looked at.
std::optional<ChatOptions> parse_chat(const Args& args);
std::optional<GenerateVerbOptions> parse_generate(const Args& args);
std::optional<ServeVerbOptions> parse_serve(const Args& args);
std::optional<BatchVerbOptions> parse_batch(const Args& args);
std::optional<LogitsOptions> parse_logits(const Args& args);
std::optional<BenchOptions> parse_bench(const Args& args);
std::optional<PerplexityVerbOptions> parse_perplexity(const Args& args);
std::optional<QuantizeOptions> parse_quantize(const Args& args);
std::optional<ImatrixOptions> parse_imatrix(const Args& args);
std::optional<ConvertOptions> parse_convert(const Args& args);
std::optional<ShardOptions> parse_shard(const Args& args);
std::optional<FuseOptions> parse_fuse(const Args& args);
std::optional<TokenizeOptions> parse_tokenize(const Args& args);
std::optional<InspectOptions> parse_inspect(const Args& args);
std::optional<DoctorOptions> parse_doctor(const Args& args);
std::optional<CompletionOptions> parse_completion(const Args& args);
std::optional<TrainOptions> parse_train(const Args& args);
std::optional<TrainOptions> parse_lora(const Args& args);
std::optional<PlanOptions> parse_plan(const Args& args);
std::optional<PlotVerbOptions> parse_plot(const Args& args);
std::optional<dist::LaunchOptions> parse_launch(const Args& args);

}  // namespace weft::cli
