#include "weft/dist/hierarchical/places.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

using Ranks = std::vector<int>;

TEST(HostPlaces, GroupsTheRanksByHostInTheOrderOfTheirFirst) {
  const HostPlaces places = places_of({"b", "a", "b", "a", "c"}, 3);
  EXPECT_EQ(places.hosts, (std::vector<Ranks>{{0, 2}, {1, 3}, {4}}));
  EXPECT_EQ(places.own_host, 1);
  EXPECT_EQ(places.own_index, 1);
  EXPECT_EQ(places.own_rank(), 3);
  EXPECT_EQ(places.here(), (Ranks{1, 3}));
  EXPECT_EQ(places.host_of(4), 2);
  EXPECT_EQ(places.index_of(2), 1);
  EXPECT_EQ(places.across(0), (Ranks{0, 1, 4}));
  EXPECT_FALSE(places.is_even());
  EXPECT_FALSE(places.all_alone());
}

TEST(HostPlaces, KnowsHostsOfOneSizeAndRanksThatAreAlone) {
  const HostPlaces even = places_of({"a", "a", "b", "b"}, 2);
  EXPECT_TRUE(even.is_even());
  EXPECT_FALSE(even.all_alone());
  EXPECT_EQ(even.across(1), (Ranks{1, 3}));
  EXPECT_TRUE(places_of({"a", "b"}, 0).all_alone());
}

}  // namespace
}  // namespace weft::dist
