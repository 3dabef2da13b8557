#include "weft/train/metrics/progress_line.h"

#include <gtest/gtest.h>

#include "weft/train/metrics/flops.h"

namespace weft::train {
namespace {

StepMetrics some_metrics() {
  StepMetrics metrics;
  metrics.step = 12;
  metrics.loss = 3.21449;
  metrics.grad_norm = 0.8421;
  metrics.lr = 3e-4;
  metrics.tokens_per_s = 12345;
  metrics.rss_bytes = 1'234'000'000;
  return metrics;
}

TEST(ProgressLine, TellsWhatPeopleAskFor) {
  StepMetrics metrics = some_metrics();
  metrics.mfu = 0.4312;
  EXPECT_EQ(
      progress_line(metrics, 1000, 7500),
      "step   12/1000  loss  3.2145  norm  0.842  lr 3.00e-04  12.3 k tok/s  MFU 43.1 %  1.23 "
      "GB  ETA 2 h 05 min");
}

TEST(ProgressLine, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(progress_line(some_metrics(), 12, 0),
            "step 12/12  loss  3.2145  norm  0.842  lr 3.00e-04  12.3 k tok/s  1.23 GB  ETA 0 s");
}

TEST(ProgressLine, ShowsAnEvaluation) {
  StepMetrics metrics = some_metrics();
  metrics.eval_loss = 3.5;
  EXPECT_NE(progress_line(metrics, 12, 0).find("loss  3.2145  eval  3.5000  norm"),
            std::string::npos);
}

TEST(EtaEstimate, TakesTheMedianOfRecentSteps) {
  EtaEstimate eta;
  EXPECT_EQ(eta.seconds_left(10), 0);
  for (const double seconds : {30.0, 2.0, 2.0, 9.0, 2.0}) eta.add(seconds);
  EXPECT_EQ(eta.seconds_left(10), 20);
  for (int i = 0; i < 40; ++i) eta.add(1.0);
  EXPECT_EQ(eta.seconds_left(7), 7);
}

TEST(Flops, FollowThePublishedConvention) {
  // 6 N + 12 L H T by hand: 6 * 1000 + 12 * 2 * 64 * 128.
  EXPECT_EQ(flops_per_token({1000, 2 * 64, 128}), 202608);
  EXPECT_EQ(flops_per_token({1000, 2 * 64, 128, false}), 200608);
  EXPECT_EQ(model_flops_utilization(10, 202608, 4052160), 0.5);
  EXPECT_EQ(model_flops_utilization(10, 202608, 0), std::nullopt);
}

}  // namespace
}  // namespace weft::train
