// Draws by each rank, and from the likeliest tokens of each, against those from all logits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/serve_steps.h"

namespace weft::serve {
namespace {

using test::Client;
using test::Loaded;
using test::real_model;
using test::request_of;
using test::run_slowly;
using test::serve_all;

std::vector<Client> drawing_clients() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 6; ++i) {
    Client client{request_of(12 + i, 10 * i, 40, i == 0 ? 0 : 0.9), 0, -1};
    generate::SamplerOptions& sampler = client.request.options.generate.sampler;
    // The second and the fifth draw from all tokens.
    sampler.top_k = i == 0 ? 0 : 40 * i;
    sampler.top_p = i % 2 == 0 ? 1 : 0.9;
    if (i % 3 == 1) sampler = {.temperature = sampler.temperature, .seed = sampler.seed};
    if (i % 3 == 0) {
      sampler.repeat_penalty = 1.2;
      sampler.frequency_penalty = 0.5;
    }
    clients.push_back(client);
  }
  return clients;
}

TEST(Draws, FromTheLikeliestTokensOfEachRankAreThoseFromAllLogits) {
  for (const int n : {1, 2, 3}) {
    run_slowly(n, [](dist::World& world) {
      const Loaded loaded = real_model(world);
      SchedulerOptions options;
      options.context = 128;
      StepRunner runner(loaded.model, options.context, options.slots);
      std::vector<Client> clients = drawing_clients();
      const auto seen = serve_all(runner, loaded.tokenizer, clients, options);
      // What tells probabilities takes all logits.
      for (Client& client : clients) client.request.options.generate.num_logprobs = 0;
      const auto joined = serve_all(runner, loaded.tokenizer, clients, options);
      if (world.rank() != 0) return;
      for (size_t i = 0; i < clients.size(); ++i) {
        EXPECT_EQ(seen[i].text, joined[i].text) << "client " << i;
        EXPECT_EQ(seen[i].num_drawn, 40);
        EXPECT_TRUE(seen[i].logprobs.empty());
        EXPECT_EQ(joined[i].logprobs.size(), 40U);
      }
    });
  }
}

}  // namespace
}  // namespace weft::serve
