// Families whose layers are no plain attention and no plain feed-forward, among other requests.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/models/enlarged_family.h"
#include "tests/serve/serve_steps.h"

namespace weft::serve {
namespace {

using test::Client;
using test::expect_equal;
using test::Seen;
using test::serve_all;

// Layers' own inputs and others' keys, sinks, experts beside a feed-forward layer, gated delta
// nets, convolutions and latents; all but the last with windows or states.
const std::vector<std::string> kServedFamilies = {"gemma4_small", "gpt_oss", "gemma4_moe",
                                                  "qwen3_next",   "lfm2",    "deepseek_v3"};
constexpr int64_t kContext = 640;

SchedulerOptions roomy_options(const StepRunner& runner) {
  SchedulerOptions options;
  options.context = kContext;
  options.slots = 5;
  options.step_tokens = 5 + 15 + 2 * kPieceTokens;
  options.most_as_alone = runner.most_as_alone();
  // A layer of a piece in each step with other sequences' tokens.
  options.num_layers = runner.num_layers();
  options.max_slowdown = 2;
  return options;
}

// Prompts that repeat a few tokens, so that guesses are right, of one piece, of several, and of
// less than a window; some with draws, and one that goes.
std::vector<Client> clients_of_families() {
  std::vector<Client> clients;
  const std::vector<int64_t> lengths = {3, 150, 300, 40, 130, 90, 200, 5};
  for (int64_t i = 0; i < std::ssize(lengths); ++i) {
    Client client;
    client.request = test::request_of(0, 0, i % 2 == 0 ? 160 : 60, i % 3 == 1 ? 0.8 : 0);
    for (int64_t k = 0; k < lengths[i]; ++k) {
      client.request.prompt.push_back(1 + (k % 7 + 31 * i) % 255);
    }
    if (i % 3 == 2) client.request.options.generate.num_logprobs = 1;
    client.first_step = i / 2;
    if (i == 5) client.cancelled_at = 20;
    clients.push_back(client);
  }
  return clients;
}

std::vector<Seen> each_alone(StepRunner& runner, const text::Tokenizer& tokenizer,
                             std::vector<Client> clients) {
  std::vector<Seen> seen;
  for (Client& client : clients) {
    client.first_step = 0;
    seen.push_back(serve_all(runner, tokenizer, {client}, roomy_options(runner)).front());
  }
  return seen;
}

// With memory for little more than one context, so that sequences lose their slots; with pages for
// prompts and with guesses where layers keep no states.
SchedulerOptions tight_options(const StepRunner& runner) {
  SchedulerOptions options = roomy_options(runner);
  options.state_pieces = (runner.state_bytes() + runner.page_bytes() - 1) / runner.page_bytes();
  options.kv_pieces = pieces_of(kContext) + 2 * options.state_pieces;
  if (options.state_pieces > 0) return options;
  options.prefix.num_pages = 4;
  options.speculate = generate::kMostGuesses;
  return options;
}

TEST(ServedFamilies, GiveEachRequestWhatItGetsAlone) {
  test::run_slowly(2, [](dist::World& world) {
    const auto tokenizer = text::Tokenizer::make(testing::byte_vocabulary(), "test");
    const std::vector<Client> clients = clients_of_families();
    int64_t num_guessed_right = 0;
    for (const std::string& name : kServedFamilies) {
      SCOPED_TRACE(name);
      const auto model = weft::test::enlarged_family(name, world.group(), 16,
                                                     {{"vocab_size", 256},
                                                      {"vocab_size_per_layer_input", 256},
                                                      {"max_position_embeddings", kContext}});
      StepRunner runner(model, kContext, 5);
      EXPECT_EQ(runner.num_layers(), model->config().num_layers);
      const auto alone = each_alone(runner, tokenizer, clients);
      const auto together = serve_all(runner, tokenizer, clients, roomy_options(runner));
      StepRunner tight(model, kContext, 5);
      tight.take_memory_in_pieces();
      SchedulerState state;
      const auto preempted = serve_all(tight, tokenizer, clients, tight_options(tight), &state);
      if (world.rank() != 0) continue;
      EXPECT_GE(state.num_preempted, 1);
      num_guessed_right += state.num_guessed_right;
      expect_equal(together, alone);
      expect_equal(preempted, alone);
    }
    EXPECT_GT(num_guessed_right, world.rank() == 0 ? 100 : -1);
  });
}

}  // namespace
}  // namespace weft::serve
