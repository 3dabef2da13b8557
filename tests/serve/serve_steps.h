#pragma once

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "tests/text/byte_vocabulary.h"
#include "weft/dist/world.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/serve/engine/run_steps.h"
#include "weft/serve/engine/scheduler.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve::test {

using weft::test::model_data;
using weft::test::smollm2_path;

/// A model and its tokenizer.
struct Loaded {
  std::shared_ptr<models::CausalLM> model;
  text::Tokenizer tokenizer;
};

/// run_ranks with time for several runs of the model of set-up: three ranks on two cores.
inline void run_slowly(int n, const std::function<void(dist::World&)>& body) {
  weft::test::RunOptions options;
  options.timeout = std::chrono::minutes(10);
  weft::test::run_ranks(n, body, options);
}

/// The model of set-up in panels.
inline Loaded real_model(const dist::World& world) {
  const auto file = io::TensorFile::open(test::smollm2_path());
  auto model = models::load_model(*file, world.group()).model;
  nn::put_in_panels(*model, 16);
  return {std::move(model), models::load_tokenizer(*file)};
}

/// A small one of float32, whose tokens are bytes.
inline Loaded byte_model(const dist::World& world) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  return {models::load_model(*file, world.group()).model,
          text::Tokenizer::make(testing::byte_vocabulary(), "test")};
}

inline std::vector<int64_t> some_tokens(int64_t count, int64_t first) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((first + i) * 997 % 49000);
  return tokens;
}

/// Reads tokens behind what a cache has.
inline at::Tensor read(models::CausalLM& model, const std::vector<int64_t>& tokens,
                       nn::KvCache& cache) {
  return model.forward(at::tensor(tokens, at::kLong).unsqueeze(0), &cache);
}

/// What a sequence's client has seen.
struct Seen {
  std::string text;
  std::vector<double> logprobs;
  std::vector<float> embedding;
  std::optional<SequenceEnd> end;
  int64_t num_drawn = 0;
  int64_t num_reused = 0;
  /// The step before which the last event came.
  int64_t last_step = 0;
};

/// Rank 0's clients: what each asks for, and at which step.
struct Client {
  SequenceRequest request;
  int64_t first_step = 0;
  /// -1: it stays.
  int64_t cancelled_at = -1;
};

inline SequenceRequest request_of(int64_t prompt, int64_t first, int64_t tokens,
                                  double temperature) {
  SequenceRequest request;
  request.prompt = some_tokens(prompt, first);
  request.options.generate.max_tokens = tokens;
  request.options.generate.sampler.temperature = temperature;
  request.options.generate.sampler.seed = 7;
  request.options.ignores_end = true;
  return request;
}

/// A clock by which a layer of a whole piece takes as long as all last tokens of a step do.
inline StepClock even_clock(int64_t num_layers) {
  return [num_layers](const StepPlan& plan, const StepTimes&) {
    StepTimes times{1, 0};
    for (const StepPart& part : plan.parts) {
      if (part.reads_last()) continue;
      const auto pieces = static_cast<double>(part.tokens.size()) / kPieceTokens;
      times.pieces += pieces * static_cast<double>(part.layers_of(num_layers));
    }
    return times;
  };
}

/// Steps until all have ended, on all ranks; what was seen is rank 0's.
inline std::vector<Seen> serve_all(StepRunner& runner, const text::Tokenizer& tokenizer,
                                   const std::vector<Client>& clients,
                                   const SchedulerOptions& options,
                                   SchedulerState* state = nullptr) {
  std::vector<Seen> seen(clients.size());
  if (runner.group().rank() != 0) {
    run_steps(runner, nullptr, options, nullptr);
    return seen;
  }
  Scheduler scheduler(options, tokenizer);
  std::map<size_t, uint64_t> numbers;
  int64_t step = 0, last = 0;
  for (const Client& client : clients) {
    last = std::max({last, client.first_step, client.cancelled_at});
  }
  const auto before_step = [&] {
    for (size_t i = 0; i < clients.size(); ++i) {
      if (clients[i].first_step == step) {
        const auto sink = [&seen, &step, i](const SequenceEvent& event) {
          seen[i].text += event.text;
          if (event.token) seen[i].logprobs.push_back(event.token->drawn.logprob);
          seen[i].embedding = event.embedding;
          seen[i].end = event.end;
          seen[i].num_drawn = event.num_drawn;
          seen[i].num_reused = event.num_reused;
          seen[i].last_step = step;
        };
        const auto given = scheduler.submit({{clients[i].request, sink}});
        ASSERT_TRUE(given.has_value());
        numbers[i] = given->front();
      }
      if (clients[i].cancelled_at == step) scheduler.cancel(numbers.at(i));
    }
    if (step++ == last) scheduler.drain();
  };
  run_steps(runner, &scheduler, options, before_step, even_clock(options.num_layers));
  if (state != nullptr) *state = scheduler.state();
  return seen;
}

/// The same answers, but for clients that went.
inline void expect_equal(const std::vector<Seen>& got, const std::vector<Seen>& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].end, expected[i].end) << "client " << i;
    if (expected[i].end == SequenceEnd::kCancelled) continue;
    EXPECT_EQ(got[i].text, expected[i].text) << "client " << i;
    EXPECT_EQ(got[i].num_drawn, expected[i].num_drawn) << "client " << i;
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << "client " << i;
    EXPECT_EQ(got[i].embedding, expected[i].embedding) << "client " << i;
  }
}

}  // namespace weft::serve::test
