#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/serve_steps.h"
#include "tests/support/run_ranks.h"
#include "weft/models/reads_each.h"
#include "weft/serve/engine/run_steps.h"

namespace weft::serve {
namespace {

using test::Client;
using test::Loaded;
using test::read;
using test::real_model;
using test::request_of;
using test::Seen;
using test::serve_all;
using test::some_tokens;
using testing::error_text;
using weft::test::run_ranks;

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

// Which token each part's last one is followed by.
std::vector<int64_t> followers(StepRunner& runner, const StepPlan& plan) {
  std::vector<int64_t> tokens;
  for (const PartScores& scores : runner.run(plan))
    tokens.push_back(scores.likeliest.front().place);
  return tokens;
}

// Layers that keep a state of each sequence, whose slots are taken again.
TEST(StepRunner, GivesSequencesWithStatesWhatTheyGetAlone) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const auto model =
          models::load_model(*io::TensorFile::open(weft::test::model_data("families/lfm2")),
                             world.group())
              .model;
      StepRunner runner(model, 32, 3);
      for (const int64_t round : {0, 1}) {
        std::vector<std::vector<int64_t>> read;
        StepPlan plan;
        for (const int64_t length : {9, 1, 4}) {
          std::vector<int64_t> prompt;
          for (int64_t i = 0; i < length; ++i) prompt.push_back((7 * i + length + 3 * round) % 61);
          plan.parts.push_back({std::ssize(read), 0, Wanted::kLikeliest, prompt});
          read.push_back(prompt);
        }
        for (int64_t step = 0; step < 4; ++step) {
          const auto next = followers(runner, plan);
          for (size_t i = 0; i < read.size(); ++i) {
            StepRunner alone(model, 32, 1);
            EXPECT_EQ(next[i],
                      followers(alone, {false, {}, {{0, 0, Wanted::kLikeliest, read[i]}}, {}})[0])
                << "round " << round << ", step " << step << ", sequence " << i;
            plan.parts[i].start = std::ssize(read[i]);
            plan.parts[i].tokens = {next[i]};
            read[i].push_back(next[i]);
          }
        }
      }
    });
  }
}

// Prompts of all lengths, a third of them with draws, that come at several steps; some go early.
std::vector<Client> sixteen_clients() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 16; ++i) {
    Client client;
    client.request = request_of(i % 4 == 3 ? 150 + i : 3 + i, 10 * i, 8, i % 3 == 1 ? 0.8 : 0);
    client.first_step = i / 3;
    if (i % 5 == 4) client.cancelled_at = client.first_step + i % 4;
    if (i % 3 == 2) client.request.options.generate.num_logprobs = 2;
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
      options.num_layers = runner.num_layers();
      options.max_slowdown = 4;
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
    options.prefix.num_pages = 8;
    Client first{request_of(300, 5, 4, 0), 0, -1};
    Client beside = first;
    Client later = first;
    later.first_step = 12;
    Client longer = later;
    longer.request.prompt.resize(256);
    longer.request.prompt.push_back(1);
    longer.first_step = 20;
    StepRunner runner(loaded.model, options.context, options.slots);
    EXPECT_EQ(runner.page_bytes(), loaded.model->make_cache(1, kPieceTokens).num_bytes());
    const auto seen = serve_all(runner, loaded.tokenizer, {first, beside, later, longer}, options);
    EXPECT_EQ(seen[0].num_reused, 0);
    for (const size_t i : {1, 2, 3}) EXPECT_EQ(seen[i].num_reused, 256) << i;
    for (const size_t i : {1, 2}) EXPECT_EQ(seen[i].text, seen[0].text) << i;
    StepRunner fresh(loaded.model, options.context, options.slots);
    longer.first_step = 0;
    const auto alone = serve_all(fresh, loaded.tokenizer, {longer}, options);
    EXPECT_EQ(alone[0].num_reused, 0);
    EXPECT_EQ(alone[0].text, seen[3].text);
  });
}

// Prompts that begin with one of three texts and go on with one of two, some of whole pieces alone.
std::vector<Client> clients_that_begin_alike() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 8; ++i) {
    Client client;
    client.request = request_of(i % 3 == 2 ? 128 : 256, 7 * (i % 3), 4, i % 2 == 0 ? 0 : 0.7);
    const auto end = some_tokens(i % 4 == 0 ? 128 : 20 + i, 1000 + i % 2);
    auto& prompt = client.request.prompt;
    prompt.insert(prompt.end(), end.begin(), end.end());
    client.request.options.generate.num_logprobs = 1;
    client.first_step = i / 4;
    clients.push_back(client);
  }
  return clients;
}

TEST(Scheduler, GivesTheSameBitsHoweverManyPagesThereAre) {
  for (const int n : {1, 3}) {
    run_ranks(n, [](dist::World& world) {
      const Loaded loaded = real_model(world);
      SchedulerOptions options;
      options.context = 512;
      options.slots = 4;
      const std::vector<Client> clients = clients_that_begin_alike();
      std::vector<Seen> without;
      // Two pages give way all the time.
      for (const int64_t pages : {0, 2, 40}) {
        options.prefix.num_pages = pages;
        StepRunner runner(loaded.model, options.context, options.slots);
        const auto seen = serve_all(runner, loaded.tokenizer, clients, options);
        if (pages == 0) without = seen;
        if (world.rank() != 0) continue;
        int64_t num_reused = 0;
        for (size_t i = 0; i < clients.size(); ++i) {
          EXPECT_EQ(seen[i].text, without[i].text) << pages << " pages, client " << i;
          EXPECT_EQ(seen[i].logprobs, without[i].logprobs) << pages << " pages, client " << i;
          num_reused += seen[i].num_reused;
        }
        EXPECT_TRUE(pages == 2 || (num_reused > 0) == (pages > 0)) << num_reused;
      }
    });
  }
}

Client random_client(std::mt19937& random) {
  Client client;
  client.request.options.ignores_end = true;
  client.request.options.generate.max_tokens = 1 + random() % 4;
  const auto length = static_cast<int64_t>(100 + random() % 350);
  const auto beginning = static_cast<int64_t>(random() % 5);
  for (int64_t i = 0; i < length; ++i) {
    client.request.prompt.push_back((i / 128 * 31 + beginning * 7 + i) % 256);
  }
  client.first_step = random() % 700;
  if (random() % 3 == 0) client.cancelled_at = client.first_step + random() % 4;
  return client;
}

TEST(Scheduler, LosesNoPageOverAThousandRequestsOfWhichAThirdGoes) {
  run_ranks(1, [](dist::World& world) {
    const auto [model, tokenizer] = test::byte_model(world);
    SchedulerOptions options;
    options.context = 512;
    options.max_queue = 1000;
    options.prefix.num_pages = 7;
    StepRunner runner(model, options.context, options.slots);
    std::mt19937 random(3);
    std::vector<Client> clients(1000);
    for (Client& client : clients) client = random_client(random);
    Client last = random_client(random);
    last.first_step = 720;
    last.cancelled_at = -1;
    clients.push_back(last);
    SchedulerState state;
    const auto seen = serve_all(runner, tokenizer, clients, options, &state);
    for (size_t i = 0; i < clients.size(); ++i) ASSERT_TRUE(seen[i].end.has_value()) << i;
    EXPECT_EQ(state.num_running + state.num_waiting, 0);
    EXPECT_EQ(state.prefix.num_pages, 7);
    EXPECT_GT(state.prefix.num_evicted, 50);
    EXPECT_GT(state.prefix.num_saved, 20'000);
    EXPECT_EQ(runner.num_pages(), 7);
    StepRunner fresh(model, options.context, options.slots);
    last.first_step = 0;
    EXPECT_EQ(serve_all(fresh, tokenizer, {last}, options)[0].text, seen.back().text);
  });
}

std::vector<PieceKey> some_keys(const PrefixCache& cache, int64_t pieces, int64_t first) {
  return cache.keys_of(some_tokens(pieces * kPieceTokens, first));
}

TEST(PrefixCache, GivesThePagesOfEndsBeforeThoseOfBeginnings) {
  PrefixCache cache({3, 1, "model"});
  const auto keys = some_keys(cache, 4, 1);
  ASSERT_EQ(keys.size(), 4U);
  const auto first = [&](size_t count) { return std::span(keys).first(count); };
  EXPECT_EQ(cache.add(first(2)), std::nullopt) << "what stands before is missing";
  for (const int64_t page : {0, 1, 2}) {
    EXPECT_EQ(cache.add(first(static_cast<size_t>(page) + 1)), page);
  }
  EXPECT_EQ(cache.add(first(3)), std::nullopt) << "it is there already";
  EXPECT_EQ(cache.add(first(4)), std::nullopt) << "its own beginning takes all pages";
  const auto others = some_keys(cache, 2, 2);
  EXPECT_EQ(cache.add(std::span(others).first(1)), 2) << "the last piece of the first prompt";
  EXPECT_EQ(cache.find(keys[2]), std::nullopt);
  EXPECT_EQ(cache.find(keys[0]), 0);
  cache.use(first(2));
  const auto third = some_keys(cache, 1, 3);
  EXPECT_EQ(cache.add(third), 2) << "the least recently used";
  EXPECT_EQ(cache.state().num_evicted, 2);
  EXPECT_EQ(cache.state().num_pages, 3);
}

TEST(PrefixCache, TellsPromptsAndModelsApart) {
  const PrefixCache cache({1, 1, "model"}), other({1, 1, "another"}), off({0, 1, "model"});
  EXPECT_TRUE(off.keys_of(some_tokens(300, 1)).empty());
  EXPECT_EQ(cache.keys_of(some_tokens(300, 1)).size(), 2U);
  EXPECT_NE(some_keys(cache, 1, 1), some_keys(other, 1, 1));
  // The same piece behind another one is another piece.
  auto tokens = some_tokens(2 * kPieceTokens, 1);
  const auto keys = cache.keys_of(tokens);
  tokens.front() += 1;
  const auto changed = cache.keys_of(tokens);
  EXPECT_NE(keys[0], changed[0]);
  EXPECT_NE(keys[1], changed[1]);
}

TEST(Scheduler, LetsAClientInWhoseFewestRun) {
  run_ranks(1, [](dist::World& world) {
    const auto [model, tokenizer] = test::byte_model(world);
    SchedulerOptions options;
    options.context = 64;
    options.slots = 2;
    options.max_queue = 20;
    Scheduler scheduler(options, tokenizer);
    std::vector<size_t> ended;
    const auto submit = [&](size_t client) {
      SequenceRequest request;
      request.prompt = {1, 2, 3};
      request.client = client;
      request.options.ignores_end = true;
      request.options.generate.max_tokens = 2;
      return scheduler.submit({{request, [&ended, client](const SequenceEvent& event) {
                                  if (event.end == SequenceEnd::kLength) ended.push_back(client);
                                }}});
    };
    while (submit(0)) continue;
    EXPECT_EQ(scheduler.state().num_waiting, 20) << "one client's wait is full, another's is not";
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(submit(7).has_value());
    scheduler.drain();
    StepRunner runner(model, options.context, options.slots);
    run_steps(runner, &scheduler, options, [] {});
    ASSERT_EQ(ended.size(), 23U);
    ended.resize(6);
    EXPECT_EQ(std::ranges::count(ended, 7U), 3);
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
