#include "weft/cli/verbs.h"

namespace weft::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"chat", "talk to a model, or ask it one question with -p", run_chat},
      {"generate", "continue a text", run_generate},
      {"logits", "write the logits of given tokens to a safetensors file", run_logits},
      {"tokenize", "show the tokens of a text", run_tokenize},
      {"bench", "measure prompt and generation speed, load time and memory", run_bench},
      {"perplexity", "measure how well a model predicts a text", run_perplexity},
      {"quantize", "write a model with its matrices quantized", run_quantize},
      {"convert", "write a model in another format or type", run_convert},
      {"shard", "cut a model into pieces for n ranks, cut pieces anew, or join them", run_shard},
      {"inspect", "show a model's tensors and what each rank holds of them", run_inspect},
      {"train", "train a model on one process or many, as a TOML file says", run_train},
      {"lora", "train low-rank adapters beside a model's frozen weights", run_lora},
      {"fuse", "make one model of a base and its trained adapters", run_fuse},
      {"plan", "predict memory, traffic and step time of a training run", run_plan},
      {"plot", "draw the loss of training runs", run_plot},
      {"doctor", "check this machine: kernels, ranks, tokenizer, a real answer", run_doctor},
      {"launch", "start a program on n ranks", run_launch},
  };
  return table;
}

}  // namespace weft::cli
