#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/generate/sampler.h"

namespace weft::cli {

/// Parses `args` with `app`. Values come from the flag, else from WEFT_<FLAG> in the environment,
/// else from the TOML file of --config (keys are the long flag names), else stay as they are.
/// `required` are flags that must have got a value from one of these.
/// Returns false when help was asked for and printed.
/// Throws ConfigError in weft's form, with a near flag's name for one that is unknown.
bool parse_flags(CLI::App& app, const std::vector<std::string>& args,
                 const std::vector<std::string>& required = {});

/// Accepts whole numbers from `low` to `high` and nothing else: "expected 1 to 8, got 9".
CLI::Validator whole_number(int64_t low, int64_t high);

/// Whole numbers from 0 between commas. `expected` says what they are, for the message.
/// Throws ConfigError naming `flag`.
std::vector<int64_t> parse_list(const std::string& flag, const std::string& text,
                                const std::string& expected);

/// The activations of verbs that generate: four times as fast as "float" and equal to 1e-4, while
/// "int8" moves near ties.
inline constexpr const char* kFastActivations = "int16";

/// MODEL, --tp and how to run: shared by all verbs that take a model.
struct ModelFlags {
  std::string model;
  int64_t tp = 0;
  int64_t threads = 0;
  std::string backend = "auto";
  /// Path of rules for loading; empty: the model's own.
  std::string shard_info;
  /// What activations are multiplied in: "float", or "int8" or "int16" where a weight's form
  /// allows. Verbs that measure numbers leave it, others set kFastActivations before they add the
  /// flags.
  std::string activations = "float";
  /// Of the verbs that take one (cli/verbs/adapter.h); empty: none.
  std::string adapter;
  /// Of the verbs that take one: "cpu" or "cuda".
  std::string device = "cpu";
  /// Of the verbs that take one: "f16" or "f32"; empty: models::CausalLM's own choice.
  std::string cache_type;
  /// "ffn" or "experts".
  std::string expert_split = "ffn";
  /// "even" or "kv".
  std::string head_split = "even";
};
/// Adds the flags, bound to `flags`, which must outlive the parse.
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// Adds --device: where weights lie and a pass runs.
void add_device_flag(CLI::App& app, ModelFlags& flags);

/// Adds --cache-type: what keys and values are kept in.
void add_cache_flag(CLI::App& app, ModelFlags& flags);

/// Adds --expert-split, bound to `name`, which takes "ffn" and "experts" alone.
void add_expert_split_flag(CLI::App& app, std::string& name);

/// Adds --head-split, bound to `name`, which takes "kv" and "even" alone.
void add_head_split_flag(CLI::App& app, std::string& name);

/// Adds --temp, --top-k, --top-p, --min-p and --seed.
void add_sampler_flags(CLI::App& app, generate::SamplerOptions& options);

/// Adds --speculate.
void add_speculate_flag(CLI::App& app, int64_t& most_guesses);

/// `model` if given, else WEFT_MODEL, else the model that set-up installs beside the build folder.
/// Throws ConfigError if there is none.
std::string model_path(const std::string& model);

/// This program's own file.
std::string program_path();

}  // namespace weft::cli
