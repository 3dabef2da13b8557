// Steps that read guesses of what follows beside sequences' last tokens.
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/serve/serve_steps.h"
#include "tests/support/run_ranks.h"
#include "weft/models/reads_each.h"

namespace weft::serve {
namespace {

using test::Client;
using test::expect_equal;
using test::Loaded;
using test::read;
using test::real_model;
using test::request_of;
using test::Seen;
using test::serve_all;
using test::some_tokens;
using weft::test::run_ranks;

TEST(ReadsEach, TakesSeveralTokensOfASequence) {
  for (const int n : {1, 3}) {
    run_ranks(n, [](dist::World& world) {
      const c10::InferenceMode inference;
      const Loaded loaded = real_model(world);
      auto& together = dynamic_cast<models::ReadsEach&>(*loaded.model);
      nn::KvCache longer = loaded.model->make_cache(1, 50),
                  shorter = loaded.model->make_cache(1, 50);
      read(*loaded.model, some_tokens(40, 1), longer);
      read(*loaded.model, some_tokens(7, 2), shorter);
      const std::vector<nn::KvCache*> caches = {&longer, &longer, &longer, &shorter};
      const std::vector<int64_t> ids = some_tokens(4, 5);
      const at::Tensor x_B1D = together.read_each(at::tensor(ids, at::kLong), caches);
      EXPECT_EQ(longer.length(), 43);
      longer.truncate(40);
      shorter.truncate(7);
      for (size_t i = 0; i < ids.size(); ++i) {
        const at::Tensor alone_11D = read(*loaded.model, {ids[i]}, *caches[i]);
        EXPECT_TRUE(at::equal(alone_11D, x_B1D.narrow(0, static_cast<int64_t>(i), 1))) << i;
      }
    });
  }
}

// Some answers repeat their prompts, so that guesses are right; some have draws, of the likeliest
// or of all tokens, penalties, or probabilities that all logits are needed for.
std::vector<Client> clients_that_repeat() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 6; ++i) {
    Client client;
    client.request = request_of(3, i, i == 3 ? 5 : 40, i == 1 || i == 5 ? 0.4 : 0);
    for (int64_t k = 0; k < 60; ++k) client.request.prompt.push_back(500 + (k + i) % 6);
    auto& sampler = client.request.options.generate.sampler;
    if (i == 1) sampler.top_k = 20;
    if (i == 2) sampler.presence_penalty = 0.1;
    if (i == 4) client.request.options.generate.num_logprobs = 1;
    client.first_step = i;
    clients.push_back(client);
  }
  return clients;
}

TEST(Scheduler, GivesTheSameBitsWithGuesses) {
  for (const int n : {1, 3}) {
    run_ranks(n, [](dist::World& world) {
      const Loaded loaded = real_model(world);
      SchedulerOptions options;
      options.context = 128;
      options.slots = 4;
      options.step_tokens = 4 + 15 + kPieceTokens;
      const std::vector<Client> clients = clients_that_repeat();
      StepRunner runner(loaded.model, options.context, options.slots);
      options.most_as_alone = runner.most_as_alone();
      const auto usual = serve_all(runner, loaded.tokenizer, clients, options);
      options.speculate = 15;
      SchedulerState state;
      const auto guessed = serve_all(runner, loaded.tokenizer, clients, options, &state);
      if (world.rank() != 0) return;
      EXPECT_GT(state.num_guessed_right, 60);
      EXPECT_GE(state.num_guessed, state.num_guessed_right);
      expect_equal(guessed, usual);
      for (const Seen& each : guessed) EXPECT_EQ(each.end, SequenceEnd::kLength);
    });
  }
}

// Where a step has room for last tokens and one piece.
TEST(Scheduler, ReadsAPromptThoughAnotherSequenceGuesses) {
  run_ranks(1, [](dist::World& world) {
    const Loaded loaded = real_model(world);
    SchedulerOptions options;
    options.context = 512;
    options.slots = 2;
    options.step_tokens = 2 + kPieceTokens;
    options.speculate = 15;
    StepRunner runner(loaded.model, options.context, options.slots);
    options.most_as_alone = runner.most_as_alone();
    Client guesses = clients_that_repeat().front(), waits;
    guesses.request.options.generate.max_tokens = 300;
    waits.request = request_of(kPieceTokens, 1, 1, 0);
    waits.first_step = 10;
    const auto seen = serve_all(runner, loaded.tokenizer, {guesses, waits}, options);
    EXPECT_EQ(seen[1].last_step, 11);
    EXPECT_GT(seen[0].last_step, seen[1].last_step);
  });
}

}  // namespace
}  // namespace weft::serve
