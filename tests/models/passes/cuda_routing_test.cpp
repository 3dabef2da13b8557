// Routing on the GPU against the processor's.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tests/support/needs_cuda.h"
#include "weft/cuda/buffer.h"
#include "weft/cuda/kernels/experts/routing.h"
#include "weft/models/passes/experts/expert_routing.h"

namespace weft::models {
namespace {

using Rows = std::vector<std::vector<float>>;

template <class T>
std::vector<T> downloaded(const cuda::Buffer& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.num_bytes()) / sizeof(T));
  buffer.download(values.data(), buffer.num_bytes());
  return values;
}

template <class T>
cuda::Buffer room_for(int64_t count) {
  return cuda::Buffer(count * static_cast<int64_t>(sizeof(T)));
}

template <class T>
cuda::Buffer uploaded(const std::vector<T>& values) {
  return cuda::Buffer::of(std::span<const T>(values));
}

// What route() writes of some rows.
struct Routed {
  Routed(const Rows& logits, const ExpertRouting::Options& options, int32_t tile_rows,
         const std::vector<float>& router_bias = {}) {
    const auto rows = static_cast<int64_t>(logits.size());
    std::vector<float> all;
    for (const auto& row : logits) all.insert(all.end(), row.begin(), row.end());
    const std::vector<int32_t> places(options.places.begin(), options.places.end());
    const auto numbers_or_none = [&](const float* numbers) {
      return numbers == nullptr
                 ? cuda::Buffer()
                 : uploaded(std::vector<float>(numbers, numbers + options.num_experts));
    };
    const cuda::Buffer on_gpu = uploaded(all), of_places = uploaded(places),
                       bias = uploaded(router_bias), choice = numbers_or_none(options.choice_bias),
                       factors = numbers_or_none(options.expert_factors),
                       scores = room_for<float>(rows * options.num_experts);
    call.logits = on_gpu.as<float>();
    call.router_bias = bias.as<const float>();
    call.choice_bias = choice.as<const float>();
    call.factors = factors.as<const float>();
    call.places = of_places.as<const int32_t>();
    call.scores = scores.as<float>();
    call.rows = static_cast<int32_t>(rows);
    call.num_experts = static_cast<int32_t>(options.num_experts);
    call.num_held = *std::ranges::max_element(places) + 1;
    call.top_k = static_cast<int32_t>(options.top_k);
    call.tile_rows = tile_rows;
    call.num_groups = static_cast<int32_t>(options.num_groups);
    call.groups_per_token = static_cast<int32_t>(options.groups_per_token);
    call.best_of_group = static_cast<int32_t>(options.best_of_group);
    call.normalizes = options.normalizes;
    call.has_sigmoids = options.has_sigmoids;
    call.scale = options.scale;
    const int64_t pairs = call.num_pairs();
    const auto of_chosen = room_for<int32_t>(pairs), of_slots = room_for<int32_t>(pairs),
               of_rows = room_for<int32_t>(pairs);
    const auto of_weights = room_for<float>(pairs);
    const auto of_tiles = room_for<cuda::ExpertTile>(call.num_tiles());
    call.chosen = of_chosen.as<int32_t>();
    call.weights = of_weights.as<float>();
    call.slots = of_slots.as<int32_t>();
    call.row_of_slot = of_rows.as<int32_t>();
    call.tiles = of_tiles.as<cuda::ExpertTile>();
    cuda::route(call);
    chosen = downloaded<int32_t>(of_chosen);
    slots = downloaded<int32_t>(of_slots);
    row_of_slot = downloaded<int32_t>(of_rows);
    weights = downloaded<float>(of_weights);
    tiles = downloaded<cuda::ExpertTile>(of_tiles);
  }

  cuda::RoutingCall call;
  std::vector<int32_t> chosen, slots, row_of_slot;
  std::vector<float> weights;
  std::vector<cuda::ExpertTile> tiles;
};

// Each pair whose expert is held has a slot of its own, in a tile of that expert.
void expect_slots(const Routed& routed, const ExpertRouting::Options& options,
                  const std::string& what) {
  std::map<int32_t, int32_t> expert_of_slot;
  for (const cuda::ExpertTile& tile : routed.tiles) {
    EXPECT_LE(tile.count, routed.call.tile_rows) << what;
    for (int32_t i = 0; i < tile.count; ++i) {
      EXPECT_TRUE(expert_of_slot.emplace(tile.first + i, tile.expert).second) << what;
    }
  }
  size_t num_held = 0;
  for (size_t pair = 0; pair < routed.chosen.size(); ++pair) {
    const int64_t place = options.places[static_cast<size_t>(routed.chosen[pair])];
    const int32_t slot = routed.slots[pair];
    EXPECT_EQ(slot < 0, place < 0) << what;
    if (slot < 0) continue;
    ++num_held;
    ASSERT_TRUE(expert_of_slot.contains(slot)) << what;
    EXPECT_EQ(expert_of_slot.at(slot), place) << what;
    EXPECT_EQ(routed.row_of_slot[static_cast<size_t>(slot)],
              static_cast<int32_t>(pair) / routed.call.top_k)
        << what;
  }
  EXPECT_EQ(expert_of_slot.size(), num_held) << what;
}

void expect_as_on_the_processor(const Rows& logits, ExpertRouting::Options options,
                                const std::string& what) {
  std::vector<int64_t> all(static_cast<size_t>(options.num_experts));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  options.places = all;
  FloatRows rows;
  rows.of(static_cast<int64_t>(logits.size()), options.num_experts);
  for (size_t i = 0; i < logits.size(); ++i) {
    std::ranges::copy(logits[i], rows.row(static_cast<int64_t>(i)));
  }
  ExpertRouting routing;
  routing.route(rows, static_cast<int64_t>(logits.size()), options);
  for (const int32_t tile_rows : {1, 4}) {
    const Routed routed(logits, options, tile_rows);
    size_t pair = 0;
    for (size_t row = 0; row < logits.size(); ++row) {
      routing.for_each_of(static_cast<int64_t>(row), [&](int64_t slot, float weight) {
        EXPECT_EQ(routed.chosen[pair], static_cast<int32_t>(routing.active_of(slot)))
            << what << ", row " << row;
        EXPECT_NEAR(routed.weights[pair], weight, 2e-6F) << what << ", row " << row;
        ++pair;
      });
    }
    EXPECT_EQ(pair, routed.chosen.size()) << what;
    expect_slots(routed, options, what);
  }
}

// Of every third row several are equal.
Rows logits_of(size_t rows, size_t experts) {
  Rows logits(rows, std::vector<float>(experts));
  uint32_t state = 3;
  for (size_t row = 0; row < rows; ++row) {
    for (float& each : logits[row]) {
      state = state * 1664525 + 1013904223;
      each = static_cast<float>(state >> 8) * 0x1p-22F - 2;
      if (row % 3 == 0) each = std::round(each);
    }
  }
  return logits;
}

class CudaRouting : public test::NeedsCuda {};

TEST_F(CudaRouting, ChoosesAsTheProcessor) {
  for (const int64_t experts : {5, 40, 136}) {
    const Rows logits = logits_of(21, static_cast<size_t>(experts));
    for (const bool normalizes : {false, true}) {
      ExpertRouting::Options options;
      options.num_experts = experts;
      options.top_k = 5;
      options.normalizes = normalizes;
      expect_as_on_the_processor(logits, options, "softmax");
      options.has_sigmoids = true;
      options.scale = 2.5;
      expect_as_on_the_processor(logits, options, "sigmoids");
    }
  }
}

TEST_F(CudaRouting, ChoosesByGroupsAndBiasesAsTheProcessor) {
  const Rows logits = logits_of(10, 48);
  std::vector<float> bias, factors;
  for (int i = 0; i < 48; ++i) {
    bias.push_back(static_cast<float>(i * 7 % 11) * 0.05F);
    factors.push_back(1 + static_cast<float>(i % 5));
  }
  for (const bool has_sigmoids : {false, true}) {
    for (const int64_t best : {1, 2}) {
      ExpertRouting::Options options;
      options.num_experts = 48;
      options.top_k = 6;
      options.has_sigmoids = has_sigmoids;
      options.num_groups = 8;
      options.groups_per_token = 3;
      options.best_of_group = best;
      options.choice_bias = has_sigmoids ? bias.data() : nullptr;
      options.expert_factors = factors.data();
      expect_as_on_the_processor(logits, options, "groups");
    }
  }
}

TEST_F(CudaRouting, LeavesOutWhatOtherRanksHold) {
  const std::vector<int64_t> places = {-1, 0, -1, -1, 1, 2, -1};
  ExpertRouting::Options options;
  options.num_experts = 7;
  options.top_k = 3;
  options.places = places;
  for (const int32_t tile_rows : {1, 4}) {
    expect_slots(Routed(logits_of(50, 7), options, tile_rows), options, "some of the experts");
    // Of the rows, none takes an expert that is held, or all take one.
    const Rows none(9, {5, 0, 4, 3, 0, 0, 2}), same(9, {5, 9, 4, 0, 0, 0, 0});
    expect_slots(Routed(none, options, tile_rows), options, "none of the experts");
    expect_slots(Routed(same, options, tile_rows), options, "one of the experts");
  }
}

TEST_F(CudaRouting, AddsTheBiasOfTheRouter) {
  const std::vector<int64_t> places = {0, 1, 2};
  ExpertRouting::Options options;
  options.num_experts = 3;
  options.places = places;
  EXPECT_EQ(Routed({{1, 2, 3}, {3, 0, 0}}, options, 1, {0, 2, 0}).chosen,
            (std::vector<int32_t>{1, 0}));
}

// Broken weights give broken numbers and no wrong place in memory.
TEST_F(CudaRouting, KeepsWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<int64_t> places = {0, 1, 2};
  ExpertRouting::Options options;
  options.num_experts = 3;
  options.top_k = 2;
  options.places = places;
  const Rows logits = {{nan, nan, nan}, {nan, 1, 2}, {nan, -inf, 0}, {inf, inf, 0}};
  for (const bool has_sigmoids : {false, true}) {
    options.has_sigmoids = has_sigmoids;
    const Routed routed(logits, options, 4);
    EXPECT_EQ(routed.chosen, (std::vector<int32_t>{0, 1, 1, 2, 1, 2, 0, 1}));
    EXPECT_TRUE(std::isnan(routed.weights[0]) && std::isnan(routed.weights[1]));
    expect_slots(routed, options, "no numbers");
  }
}

}  // namespace
}  // namespace weft::models
