// Sequences that lose their slots to older ones and read all of their tokens again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/made_up_adapters.h"
#include "tests/serve/serve_steps.h"
#include "tests/support/run_ranks.h"

namespace weft::serve {
namespace {

using test::Client;
using test::expect_equal;
using test::Loaded;
using test::real_model;
using test::request_of;
using test::run_slowly;
using test::serve_all;
using testing::error_text;
using weft::test::run_ranks;

// Answers that grow over the edges of pieces while others wait, with and without draws; one is a
// vector, and some go when they may have lost their slots.
std::vector<Client> growing_clients() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t prompt = i % 3 == 2 ? 200 + i : 90 + 4 * i;
    Client client{request_of(prompt, 10 * i, 40, i % 2 == 1 ? 0.8 : 0), i / 2, -1};
    client.request.options.generate.num_logprobs = i % 3 == 0 ? 1 : -1;
    client.request.adapter = i % 3 == 1 ? 1 : 0;
    if (i == 5) client.cancelled_at = 40;
    if (i == 4) client.request.pooling = Pooling::kMean;
    clients.push_back(client);
  }
  return clients;
}

// With pages for prompts and without, by tokens read together and one by one.
TEST(Preemption, ChangesNoBitOfAnAnswer) {
  for (const int n : {1, 2, 3}) {
    run_slowly(n, [](dist::World& world) {
      const Loaded loaded = real_model(world);
      models::attach_adapter(*loaded.model, test::MadeUpAdapters(1, 4), 1);
      SchedulerOptions options;
      options.context = 384;
      options.slots = 6;
      options.step_tokens = 6 + 2 * kPieceTokens;
      const std::vector<Client> clients = growing_clients();
      StepRunner roomy(loaded.model, options.context, options.slots);
      EXPECT_EQ(roomy.most_as_alone(), 16);
      const auto undisturbed = serve_all(roomy, loaded.tokenizer, clients, options);
      EXPECT_GT(roomy.num_used_slots(), 3) << "memory is kept for the next ones";
      options.kv_pieces = 4;
      const int64_t runner_layers = roomy.num_layers();
      EXPECT_EQ(runner_layers, 30);
      const std::vector<int64_t> ways =
          world.size() == 1 ? std::vector<int64_t>{1, 16} : std::vector<int64_t>{16};
      for (const int64_t most_as_alone : ways) {
        options.most_as_alone = most_as_alone;
        options.prefix.num_pages = most_as_alone == 1 ? 0 : 5;
        options.num_layers = runner_layers;
        options.max_slowdown = most_as_alone == 1 ? 0 : 16;
        SchedulerState state;
        StepRunner runner(loaded.model, options.context, options.slots);
        runner.take_memory_in_pieces();
        const auto seen = serve_all(runner, loaded.tokenizer, clients, options, &state);
        EXPECT_LT(runner.num_used_slots(), 3);
        if (world.rank() != 0) continue;
        EXPECT_GE(state.num_preempted, 2);
        expect_equal(seen, undisturbed);
      }
    });
  }
}

TEST(Preemption, NeedsRoomForOneSequence) {
  run_ranks(1, [](dist::World& world) {
    SchedulerOptions options;
    options.context = 300;
    options.kv_pieces = 2;
    const text::Tokenizer tokenizer = test::byte_model(world).tokenizer;
    EXPECT_EQ(error_text([&] { Scheduler(options, tokenizer); }),
              "ConfigError: serve.Scheduler: kv_pieces: 2, expected 3 to 1099511627776");
  });
}

}  // namespace
}  // namespace weft::serve
