#pragma once

#include <string>
#include <vector>

namespace weft::cli {

using Args = std::vector<std::string>;

/// One verb of the program: a row of the table.
struct Verb {
  std::string name;
  /// One line for `weft help`.
  std::string summary;
  /// Gets the arguments behind the verb; returns the exit code; throws core::Error.
  int (*run)(const Args& args);
};

/// All verbs, in the order that help shows.
const std::vector<Verb>& verbs();

/// Each in its own file.
int run_chat(const Args& args);
int run_generate(const Args& args);
int run_logits(const Args& args);
int run_tokenize(const Args& args);
int run_bench(const Args& args);
int run_perplexity(const Args& args);
int run_quantize(const Args& args);
int run_convert(const Args& args);
int run_shard(const Args& args);
int run_inspect(const Args& args);
int run_plan(const Args& args);
int run_plot(const Args& args);
int run_doctor(const Args& args);
int run_train(const Args& args);
int run_lora(const Args& args);
int run_fuse(const Args& args);
int run_launch(const Args& args);

}  // namespace weft::cli
