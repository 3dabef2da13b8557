// How prompts are read beside other sequences' tokens.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/serve_steps.h"
#include "tests/text/byte_vocabulary.h"
#include "weft/serve/engine/scheduler.h"
#include "weft/serve/engine/step_pace.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve {
namespace {

using testing::error_text;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

StepPlan plan_of(const std::vector<std::pair<int64_t, int64_t>>& tokens_and_layers) {
  StepPlan plan;
  for (const auto& [tokens, layers] : tokens_and_layers) {
    StepPart part;
    part.tokens.resize(static_cast<size_t>(tokens));
    part.num_layers = layers;
    plan.parts.push_back(part);
  }
  return plan;
}

TEST(StepPace, FollowsWhatStepsTook) {
  StepPace pace(4, 3);
  EXPECT_EQ(pace.layer_tokens(0, 2), kNoLimit);
  EXPECT_EQ(pace.layer_tokens(2, 0), kNoLimit);
  EXPECT_EQ(pace.layer_tokens(1, 1), 1) << "the least, before anything is known";
  // 400 tokens of a layer take 2 s, a last token 0.1 s: twice that time is for 40.
  pace.note(plan_of({{1, 0}, {100, 0}}), {0.1, 2});
  EXPECT_EQ(pace.layer_tokens(1, 1), 40);
  EXPECT_EQ(pace.layer_tokens(2, 2), 40);
  EXPECT_EQ(pace.layer_tokens(2, 6), 360) << "three wait for each that goes on";
  EXPECT_EQ(pace.layer_tokens(6, 2), 40);
  pace.note(plan_of({{1, 0}, {1, 0}}), {0.3, 0});
  EXPECT_EQ(pace.layer_tokens(1, 1), 60) << "what took more than twice as long counts as twice";
  pace.note(plan_of({{100, 1}}), {0, 1.5});
  EXPECT_EQ(pace.layer_tokens(1, 1), 40);
  EXPECT_EQ(StepPace(4, 0).layer_tokens(1, 1), kNoLimit);
  EXPECT_EQ(StepPace(1, 3).layer_tokens(1, 1), kNoLimit);
}

SequenceRequest request_of(int64_t prompt, int64_t first, int64_t tokens) {
  SequenceRequest request;
  for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back((first + i) % 250);
  request.options.generate.max_tokens = tokens;
  request.options.ignores_end = true;
  return request;
}

// A scheduler and a model that always says the same, by an even clock.
class Paced {
 public:
  explicit Paced(const SchedulerOptions& options)
      : clock_(test::even_clock(options.num_layers)),
        scheduler_(options, text::Tokenizer::make(testing::byte_vocabulary(), "test")) {}

  void submit(const SequenceRequest& request) {
    scheduler_.submit({{request, [](const SequenceEvent&) {}}});
  }

  StepPlan step() {
    StepPlan plan = scheduler_.next_plan(std::chrono::milliseconds(1));
    PartScores one;
    one.likeliest = std::span(&likeliest_, 1);
    scheduler_.take(plan, std::vector(plan.parts.size(), one), clock_(plan, {}));
    return plan;
  }

  int64_t num_preempted() const { return scheduler_.state().num_preempted; }

 private:
  nn::Largest likeliest_{1, 65};
  StepClock clock_;
  Scheduler scheduler_;
};

std::string text_of(const StepPlan& plan) {
  std::string text;
  for (const StepPart& part : plan.parts) {
    text += core::join(part.slot, ":", part.start, "+", part.tokens.size());
    if (part.first_layer > 0 || !part.is_whole()) {
      text += core::join("[", part.first_layer, "+", part.num_layers, "]");
    }
    text += part.wanted == Wanted::kNothing ? " " : "! ";
  }
  return text + core::join(plan.stores.size(), " stored");
}

// Beside last tokens there is time for one layer of a whole piece.
SchedulerOptions paced_options() {
  SchedulerOptions options;
  options.context = 1024;
  options.slots = 3;
  options.step_tokens = 3 + 2 * kPieceTokens;
  options.num_layers = 2;
  options.max_slowdown = 1.25;
  return options;
}

TEST(Scheduler, ReadsPromptsByLayersWhileOthersGoOn) {
  SchedulerOptions options = paced_options();
  options.prefix.num_pages = 4;
  Paced paced(options);
  paced.submit(request_of(200, 0, 7));
  EXPECT_EQ(text_of(paced.step()), "0:0+128 1 stored") << "nobody waits";
  EXPECT_EQ(text_of(paced.step()), "0:128+72! 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:200+1! 0 stored");
  paced.submit(request_of(256, 9, 4));
  paced.submit(request_of(256, 9, 4));
  // The third waits for the piece that the second reads, of which it gets a copy.
  EXPECT_EQ(text_of(paced.step()), "0:201+1! 1:0+128[0+1] 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:202+1! 1:0+128[1+0] 1 stored");
  EXPECT_EQ(text_of(paced.step()), "0:203+1! 1:128+128[0+1] 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:204+1! 1:128+128[1+0]! 1 stored");
  // Once the first has ended, the second's tokens set the pace.
  EXPECT_EQ(text_of(paced.step()), "0:205+1! 1:256+1! 2:128+128[0+1] 0 stored");
  EXPECT_EQ(text_of(paced.step()), "1:257+1! 2:128+128[1+0]! 0 stored");
}

TEST(Scheduler, ReadsAShortPromptBesideALongOne) {
  Paced paced(paced_options());
  paced.submit(request_of(50, 0, 20));
  EXPECT_EQ(text_of(paced.step()), "0:0+50! 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:50+1! 0 stored");
  paced.submit(request_of(300, 20, 4));
  paced.submit(request_of(100, 90, 4));
  // They take turns.
  EXPECT_EQ(text_of(paced.step()), "0:51+1! 2:0+100[0+1] 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:52+1! 1:0+128[0+1] 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:53+1! 2:0+100[1+0]! 0 stored");
  EXPECT_EQ(text_of(paced.step()), "0:54+1! 1:0+128[1+0] 2:100+1! 0 stored");
}

// Of which not a position counts as read until all layers have run.
TEST(Scheduler, CountsTheMemoryOfAPieceThatHasBegun) {
  SchedulerOptions options = paced_options();
  options.num_layers = 64;
  options.kv_pieces = 8;
  Paced paced(options);
  paced.submit(request_of(120, 0, 400));
  EXPECT_EQ(text_of(paced.step()), "0:0+120! 0 stored");
  paced.submit(request_of(640, 20, 4));
  for (int i = 0; i < 263; ++i) paced.step();
  EXPECT_EQ(text_of(paced.step()), "0:383+1! 1:512+128[7+1] 0 stored");
  EXPECT_EQ(paced.num_preempted(), 0) << "there is room for 8 pieces";
  EXPECT_EQ(text_of(paced.step()), "0:384+1! 0 stored");
  EXPECT_EQ(paced.num_preempted(), 1);
}

TEST(Scheduler, RefusesASlowdownThatIsNone) {
  SchedulerOptions options;
  options.max_slowdown = 0.5;
  const auto tokenizer = text::Tokenizer::make(testing::byte_vocabulary(), "test");
  EXPECT_EQ(error_text([&] { Scheduler(options, tokenizer); }),
            "ConfigError: serve.Scheduler: max_slowdown: 0.5, expected 0 or more than 1");
}

}  // namespace
}  // namespace weft::serve
