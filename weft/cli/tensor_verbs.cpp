#include "weft/cli/tensor_verbs.h"

#include <array>
#include <string_view>

#include "weft/cli/parse/parse.h"
#include "weft/cli/verbs.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

struct TensorVerbRow {
  std::string_view name;
  int (*run)(const Args& args);
};

constexpr auto kTensorVerbs = std::to_array<TensorVerbRow>({
    {"chat", parse_and_run<parse_chat, run_chat>},
    {"generate", parse_and_run<parse_generate, run_generate>},
    {"serve", parse_and_run<parse_serve, run_serve>},
    {"batch", parse_and_run<parse_batch, run_batch>},
    {"logits", parse_and_run<parse_logits, run_logits>},
    {"bench", parse_and_run<parse_bench, run_bench>},
    {"perplexity", parse_and_run<parse_perplexity, run_perplexity>},
    {"quantize", parse_and_run<parse_quantize, run_quantize>},
    {"imatrix", parse_and_run<parse_imatrix, run_imatrix>},
    {"convert", parse_and_run<parse_convert, run_convert>},
    {"shard", parse_and_run<parse_shard, run_shard>},
    {"inspect", parse_and_run<parse_inspect, run_inspect>},
    {"train", parse_and_run<parse_train, run_train>},
    {"lora", parse_and_run<parse_lora, run_train>},
    {"fuse", parse_and_run<parse_fuse, run_fuse>},
    {"doctor", parse_and_run<parse_doctor, run_doctor>},
    {"launch", parse_and_run<parse_launch, run_launch>},
});

}  // namespace

int run_tensor_verb(const std::string& verb, const Args& args) {
  for (const TensorVerbRow& row : kTensorVerbs) {
    if (verb == row.name) return row.run(args);
  }
  core::fail<core::InternalError>("weft ", verb, ": is in no table of what runs it");
}

}  // namespace weft::cli
