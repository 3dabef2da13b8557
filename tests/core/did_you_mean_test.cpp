#include "weft/core/did_you_mean.h"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

TEST(DidYouMean, SuggestsANearName) {
  EXPECT_EQ(did_you_mean("--tmep", {"--temp", "--top-k"}), " (did you mean '--temp'?)");
  EXPECT_EQ(did_you_mean("--elephant", {"--temp", "--top-k"}), "");
  EXPECT_EQ(did_you_mean("lrr", {"name", "lr"}), " (did you mean 'lr'?)");
}

TEST(DidYouMean, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(did_you_mean("x", {}), "");
  EXPECT_EQ(did_you_mean("x", {"lr", "dp"}), "");
}

}  // namespace
}  // namespace weft::core
