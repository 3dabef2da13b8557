#include "weft/io/shard_info/rule_index.h"

#include <gtest/gtest.h>

#include "weft/io/shard_info/name_pattern.h"

namespace weft::io {
namespace {

using Names = std::vector<std::string>;

TEST(NamePattern, StarsAreDottedSegmentsOfDigits) {
  EXPECT_EQ(match_pattern("a.*.b.*", "a.3.b.12"), (Names{"3", "12"}));
  EXPECT_EQ(match_pattern("a.b", "a.b"), Names{});
  for (const char* name : {"a.3.b", "a.3.b.12.c", "a.x.b.12", "a..b.12", "a.3.b.", "a.3b.12", ""}) {
    EXPECT_FALSE(match_pattern("a.*.b.*", name).has_value()) << name;
  }
  EXPECT_FALSE(match_pattern("a.1*", "a.12").has_value());
  EXPECT_EQ(fill_pattern("a.*.b.*", {"3", "12"}), "a.3.b.12");
  EXPECT_EQ(fill_pattern("a.", {}), "a.");
  EXPECT_FALSE(fill_pattern("a.*", {}).has_value());
  EXPECT_FALSE(fill_pattern("a.*", {"1", "2"}).has_value());
  EXPECT_EQ(num_stars("*.a.*.b*"), 2U);
}

TEST(NamePattern, ANameAndItsPatternsHaveOneMask) {
  EXPECT_EQ(masked_name("layers.3.experts.12.w"), masked_name("layers.*.experts.12.w"));
  EXPECT_EQ(masked_name("layers.3.experts.12.w"), masked_name("layers.3.experts.*.w"));
  EXPECT_NE(masked_name("layers.3.w"), masked_name("layers.x.w"));
  EXPECT_NE(masked_name("layers.3.w"), masked_name("layers.3.w.b"));
}

TEST(RuleIndex, FindsTheMostLiteralRule) {
  ShardInfo info;
  for (const char* name : {"a.*.e.*.w", "a.*.e.1.w", "a.2.e.1.w", "norm"}) {
    info.params.emplace_back().name = name;
  }
  const RuleIndex rules(info);
  const auto found = [&](const char* name) {
    const ParamRule* rule = rules.find(name);
    return rule == nullptr ? "none" : rule->name;
  };
  EXPECT_EQ(found("a.2.e.1.w"), "a.2.e.1.w");
  EXPECT_EQ(found("a.3.e.1.w"), "a.*.e.1.w");
  EXPECT_EQ(found("a.3.e.2.w"), "a.*.e.*.w");
  EXPECT_EQ(found("norm"), "norm");
  EXPECT_EQ(found("a.3.e.2.b"), "none");
  EXPECT_EQ(found("a.x.e.2.w"), "none");
}

}  // namespace
}  // namespace weft::io
