#include "weft/cli/verbs.h"

#include "weft/cli/parse/parse.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

template <auto kParse>
bool shows_help(const Args& args) {
  return !kParse(args).has_value();
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"chat", "talk to a model, or ask it one question with -p", shows_help<parse_chat>},
      {"generate", "continue a text", shows_help<parse_generate>},
      {"serve", "answer requests over HTTP, as OpenAI's API has them", shows_help<parse_serve>},
      {"batch", "answer the requests of a file, many at once", shows_help<parse_batch>},
      {"logits", "write the logits of given tokens to a safetensors file",
       shows_help<parse_logits>},
      {"tokenize", "show the tokens of a text", shows_help<parse_tokenize>,
       parse_and_run<parse_tokenize, run_tokenize>},
      {"bench", "measure prompt and generation speed, load time and memory",
       shows_help<parse_bench>},
      {"perplexity", "measure how well a model predicts a text", shows_help<parse_perplexity>},
      {"quantize", "write a model with its matrices quantized", shows_help<parse_quantize>},
      {"imatrix", "count what a model's matrices read of a text, for quantize",
       shows_help<parse_imatrix>},
      {"convert", "write a model in another format or type", shows_help<parse_convert>},
      {"shard", "cut a model into pieces for n ranks, cut pieces anew, or join them",
       shows_help<parse_shard>},
      {"inspect", "show a model's tensors and what each rank holds of them",
       shows_help<parse_inspect>},
      {"train", "train a model on one process or many, as a TOML file says",
       shows_help<parse_train>},
      {"lora", "train low-rank adapters beside a model's frozen weights", shows_help<parse_lora>},
      {"fuse", "make one model of a base and its trained adapters", shows_help<parse_fuse>},
      {"plan", "predict memory, traffic and step time of a training run", shows_help<parse_plan>,
       parse_and_run<parse_plan, run_plan>},
      {"plot", "draw the loss of training runs", shows_help<parse_plot>,
       parse_and_run<parse_plot, run_plot>},
      {"doctor", "check this machine: kernels, ranks, tokenizer, a real answer",
       shows_help<parse_doctor>},
      {"completion", "print completion for a shell, or the manual page",
       shows_help<parse_completion>, parse_and_run<parse_completion, run_completion>},
      {"launch", "start a program on n ranks", shows_help<parse_launch>},
  };
  return table;
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) {
    if (verb.name == name) return verb;
    names.push_back(verb.name);
  }
  core::fail<core::ConfigError>("unknown verb '", name, "'", core::did_you_mean(name, names),
                                "; `weft help` lists the verbs");
}

}  // namespace weft::cli
