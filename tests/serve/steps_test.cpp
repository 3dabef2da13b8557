#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/models/reads_each.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/serve/engine/run_steps.h"

namespace weft::serve {
namespace {

using test::run_ranks;
using testing::error_text;

struct Loaded {
  std::shared_ptr<models::CausalLM> model;
  text::Tokenizer tokenizer;
};

Loaded real_model(const dist::World& world) {
  const auto file = io::TensorFile::open(test::smollm2_path());
  auto model = models::load_model(*file, world.group()).model;
  nn::put_in_panels(*model, 16);
  return {std::move(model), models::load_tokenizer(*file)};
}

std::vector<int64_t> some_tokens(int64_t count, int64_t first) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((first + i) * 997 % 49000);
  return tokens;
}

at::Tensor read(models::CausalLM& model, const std::vector<int64_t>& tokens, nn::KvCache& cache) {
  return model.forward(at::tensor(tokens, at::kLong).unsqueeze(0), &cache);
}

TEST(ReadsEach, GivesEachSequenceWhatItGetsAloneBitForBit) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const c10::InferenceMode inference;
      const Loaded loaded = real_model(world);
      auto& together = dynamic_cast<models::ReadsEach&>(*loaded.model);
      std::vector<nn::KvCache> own, alone;
      std::vector<nn::KvCache*> caches;
      for (const int64_t length : {1, 40, 7, 300, 2}) {
        for (auto* list : {&own, &alone}) {
          list->push_back(loaded.model->make_cache(1, length + 3));
          read(*loaded.model, some_tokens(length, length), list->back());
        }
      }
      for (nn::KvCache& cache : own) caches.push_back(&cache);
      ASSERT_TRUE(together.reads_each(own.front()));
      for (int64_t step = 0; step < 3; ++step) {
        const std::vector<int64_t> ids = some_tokens(5, 60 * step);
        const at::Tensor all = together.read_each(at::tensor(ids, at::kLong), caches);
        for (size_t i = 0; i < alone.size(); ++i) {
          const at::Tensor one = read(*loaded.model, {ids[i]}, alone[i]);
          EXPECT_TRUE(at::equal(one, all.narrow(0, static_cast<int64_t>(i), 1)))
              << "step " << step << ", sequence " << i;
        }
      }
      EXPECT_EQ(error_text([&] { together.read_each(at::tensor(some_tokens(5, 1)), caches); }),
                "ConfigError: nn.KvCache: 5 positions, expected at most 4; use a larger "
                "--ctx-size or fewer tokens");
    });
  }
}

// What a sequence's client has seen.
struct Seen {
  std::string text;
  std::vector<double> logprobs;
  std::optional<SequenceEnd> end;
  int64_t num_drawn = 0;
  int64_t num_reused = 0;
};

// Rank 0's clients: what each asks for, and at which step.
struct Client {
  SequenceRequest request;
  int64_t first_step = 0;
  /// -1: it stays.
  int64_t cancelled_at = -1;
};

SequenceRequest request_of(int64_t prompt, int64_t first, int64_t tokens, double temperature) {
  SequenceRequest request;
  request.prompt = some_tokens(prompt, first);
  request.options.generate.max_tokens = tokens;
  request.options.generate.sampler.temperature = temperature;
  request.options.generate.sampler.seed = 7;
  request.options.ignores_end = true;
  return request;
}

std::vector<Seen> serve_all(StepRunner& runner, const text::Tokenizer& tokenizer,
                            const std::vector<Client>& clients, const SchedulerOptions& options) {
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
  run_steps(runner, &scheduler, options, [&] {
    for (size_t i = 0; i < clients.size(); ++i) {
      if (clients[i].first_step == step) {
        const auto sink = [&seen, i](const SequenceEvent& event) {
          seen[i].text += event.text;
          if (event.token) seen[i].logprobs.push_back(event.token->drawn.logprob);
          seen[i].end = event.end;
          seen[i].num_drawn = event.num_drawn;
          seen[i].num_reused = event.num_reused;
        };
        const auto given = scheduler.submit({{clients[i].request, sink}});
        ASSERT_TRUE(given.has_value());
        numbers[i] = given->front();
      }
      if (clients[i].cancelled_at == step) scheduler.cancel(numbers.at(i));
    }
    if (step++ == last) scheduler.drain();
  });
  return seen;
}

// Prompts of all lengths, a third of them with draws, that come at several steps; some go early.
std::vector<Client> sixteen_clients() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 16; ++i) {
    Client client;
    client.request = request_of(i % 4 == 3 ? 150 + i : 3 + i, 10 * i, 8, i % 3 == 1 ? 0.8 : 0);
    client.first_step = i / 3;
    if (i % 5 == 4) client.cancelled_at = client.first_step + i % 4;
    if (i % 3 == 2) client.request.num_logprobs = 2;
    clients.push_back(client);
  }
  return clients;
}

TEST(Scheduler, GivesEachRequestItsAnswerWhateverElseIsAskedFor) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const Loaded loaded = real_model(world);
      SchedulerOptions options;
      options.context = 512;
      options.slots = 6;
      options.step_tokens = 6 + 2 * kPieceTokens;
      const std::vector<Client> clients = sixteen_clients();
      StepRunner runner(loaded.model, options.context, options.slots);
      const auto together = serve_all(runner, loaded.tokenizer, clients, options);
      for (size_t i = 0; i < clients.size(); ++i) {
        if (clients[i].cancelled_at >= 0) {
          if (world.rank() != 0) continue;
          EXPECT_EQ(together[i].end, SequenceEnd::kCancelled) << i;
          continue;
        }
        if (i % 4 != 0 && i % 4 != 3 && i != 5) continue;
        Client alone = clients[i];
        alone.first_step = 0;
        const auto own = serve_all(runner, loaded.tokenizer, {alone}, options).front();
        if (world.rank() != 0) continue;
        EXPECT_EQ(own.text, together[i].text) << "client " << i;
        EXPECT_EQ(own.logprobs, together[i].logprobs) << "client " << i;
        EXPECT_EQ(together[i].end, SequenceEnd::kLength);
        EXPECT_EQ(together[i].num_drawn, 8);
        EXPECT_EQ(together[i].logprobs.size(), i % 3 == 2 ? 8U : 0U);
      }
    });
  }
}

TEST(Scheduler, ReadsWholePiecesOfAPromptOnce) {
  run_ranks(1, [](dist::World& world) {
    const Loaded loaded = real_model(world);
    SchedulerOptions options;
    options.context = 512;
    options.slots = 2;
    Client first{request_of(300, 5, 4, 0), 0, -1};
    Client again = first;
    again.first_step = 12;
    Client longer = again;
    longer.request.prompt.resize(256);
    longer.request.prompt.push_back(1);
    longer.first_step = 20;
    StepRunner runner(loaded.model, options.context, options.slots);
    const auto seen = serve_all(runner, loaded.tokenizer, {first, again, longer}, options);
    EXPECT_EQ(seen[0].num_reused, 0);
    EXPECT_EQ(seen[1].num_reused, 256);
    EXPECT_EQ(seen[2].num_reused, 256);
    EXPECT_EQ(seen[1].text, seen[0].text);
    StepRunner fresh(loaded.model, options.context, options.slots);
    longer.first_step = 0;
    const auto alone = serve_all(fresh, loaded.tokenizer, {longer}, options);
    EXPECT_EQ(alone[0].num_reused, 0);
    EXPECT_EQ(alone[0].text, seen[2].text);
  });
}

TEST(Scheduler, EndsASequenceThatFillsItsContextAndRefusesWhatDoesNotFit) {
  run_ranks(1, [](dist::World& world) {
    const Loaded loaded = real_model(world);
    SchedulerOptions options;
    options.context = 16;
    options.slots = 1;
    options.max_queue = 2;
    StepRunner runner(loaded.model, options.context, options.slots);
    const Client client{request_of(12, 1, 100, 0), 0, -1};
    const auto seen = serve_all(runner, loaded.tokenizer, {client}, options);
    EXPECT_EQ(seen[0].end, SequenceEnd::kLength);
    EXPECT_EQ(seen[0].num_drawn, 5);

    Scheduler scheduler(options, loaded.tokenizer);
    const auto submit = [&](int64_t prompt) {
      return scheduler.submit({{request_of(prompt, 1, 1, 0), [](const SequenceEvent&) {}}});
    };
    EXPECT_EQ(error_text([&] { submit(17); }),
              "ConfigError: serve.Scheduler: 17 tokens of prompt, expected at most 16");
    EXPECT_EQ(error_text([&] { submit(0); }),
              "ConfigError: serve.Scheduler: an empty prompt, expected at least one token");
    EXPECT_TRUE(submit(1).has_value());
    EXPECT_TRUE(submit(1).has_value());
    EXPECT_FALSE(submit(1).has_value());
    EXPECT_EQ(scheduler.state().num_waiting, 2);
    options.step_tokens = kPieceTokens;
    EXPECT_EQ(error_text([&] { Scheduler(options, loaded.tokenizer); }),
              "ConfigError: serve.Scheduler: step_tokens: 128, expected 129 to 1048576");
  });
}

}  // namespace
}  // namespace weft::serve
