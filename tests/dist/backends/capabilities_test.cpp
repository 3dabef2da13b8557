// What groups say that their backends can do, and what Group makes up for.
#include "weft/dist/backends/capabilities.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/core/error_text.h"
#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/backends/group_handles.h"
#include "weft/dist/group_tensors.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using testing::error_text;

TEST(ScalarTypes, HaveWhatTheyAreMadeOf) {
  constexpr ScalarTypes kSome = {at::kByte, at::kUInt64};
  static_assert(kSome.has(at::kByte) && kSome.has(at::kUInt64));
  static_assert(!kSome.has(at::kChar) && !ScalarTypes().has(at::kByte));
  EXPECT_TRUE(ScalarTypes::all().has(at::kComplexDouble));
}

TEST(Capabilities, DecideTheTypeInWhichElementsAreReduced) {
  Capabilities can;
  can.reduces = {at::kByte, at::kInt, at::kHalf, at::kFloat};
  EXPECT_EQ(type_to_reduce_in(at::kHalf, ReduceOp::kSum, can), at::kHalf);
  can.rounds_halves_often = true;
  EXPECT_EQ(type_to_reduce_in(at::kHalf, ReduceOp::kSum, can), at::kFloat);
  EXPECT_EQ(type_to_reduce_in(at::kBFloat16, ReduceOp::kAverage, can), at::kFloat);
  EXPECT_EQ(type_to_reduce_in(at::kHalf, ReduceOp::kMax, can), at::kHalf);
  EXPECT_EQ(type_to_reduce_in(at::kBool, ReduceOp::kMax, can), at::kByte);
  EXPECT_EQ(type_to_reduce_in(at::kShort, ReduceOp::kProduct, can), at::kInt);
  EXPECT_EQ(error_text([&] { type_to_reduce_in(at::kUInt32, ReduceOp::kSum, can); }),
            "ShapeError: dist.Group: reduction of UInt32: expected float32, float64, bfloat16, "
            "float16, int8, uint8, int16, int32 or int64 (bool: min, max); convert the tensor "
            "first");
}

TEST(Capabilities, DecideAsWhatElementsTravel) {
  Capabilities can;
  EXPECT_EQ(type_to_move_as(at::kUInt16, can), std::nullopt);
  can.moves = {at::kByte, at::kHalf, at::kLong};
  EXPECT_EQ(type_to_move_as(at::kHalf, can), std::nullopt);
  EXPECT_EQ(type_to_move_as(at::kUInt16, can), at::kHalf);
  EXPECT_EQ(type_to_move_as(at::kFloat8_e4m3fn, can), at::kByte);
  EXPECT_EQ(type_to_move_as(at::kComplexFloat, can), at::kLong);
  EXPECT_EQ(error_text([&] { type_to_move_as(at::kComplexDouble, can); }),
            "ShapeError: dist.Group: move of ComplexDouble: expected elements of 1, 2, 4 or 8 "
            "bytes, got 16; convert the tensor first");
}

class CapabilitiesOn : public test::OnEachBackend {
 protected:
  void on_two(const std::function<void(World&)>& body) const {
    test::run_ranks(2, body, {.backend = GetParam()});
    test::run_ranks(2, body,
                    {.backend = GetParam(), .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, CapabilitiesOn, test::kEachBackend, test::backend_of);

void expect_capabilities(const Group& group, const std::string& backend) {
  const Capabilities& can = group.handles().cpu;
  const bool is_ours = backend != "gloo";
  EXPECT_EQ(can.unequal_pieces, is_ours);
  EXPECT_EQ(can.reduce_scatter, is_ours);
  EXPECT_EQ(can.rounds_halves_often, !is_ours);
  EXPECT_EQ(can.waits_in_destructor, !is_ours);
  EXPECT_EQ(can.moves.has(at::kUInt32), is_ours);
  EXPECT_EQ(group.handles().inline_collectives != nullptr, is_ours);
  EXPECT_EQ(can.shared_memory, backend == "shm");
  EXPECT_EQ(can.compares_pieces, backend == "shm");
}

// A hierarchical group whose ranks are alone on their hosts is one of gloo, and says so; of three
// ranks two are on one host.
TEST_P(CapabilitiesOn, BelongToTheGroup) {
  test::run_ranks(3, [this](World& world) { expect_capabilities(world.group(), GetParam()); },
                  {.backend = GetParam()});
  on_two([this](World& world) {
    expect_capabilities(world.group(), GetParam() == "hierarchical" ? "gloo" : GetParam());
    // One that leaves at once ends connections that another has not seen complete yet.
    world.group().barrier();
  });
  EXPECT_FALSE(Group().handles().cpu.shared_memory);
}

// The numbers 0, 1 … times the rank's number and one, as `dtype`, which arithmetic may lack.
at::Tensor multiples_of_rank(int64_t rank, at::ScalarType dtype) {
  return (at::arange(12, at::kLong) * (rank + 1)).view({3, 4}).to(dtype);
}

void expect_moved(const Group& group, at::ScalarType dtype) {
  SCOPED_TRACE(core::join(dtype));
  const at::Tensor own = multiples_of_rank(group.rank(), dtype);
  const at::Tensor expected = at::cat({multiples_of_rank(0, dtype), multiples_of_rank(1, dtype)});
  EXPECT_TRUE(at::equal(group.all_gather(own, 0), expected));
  const at::Tensor part = own.narrow(1, 0, 1 + group.rank());
  const at::Tensor first = multiples_of_rank(0, dtype).narrow(1, 0, 1);
  const at::Tensor second = multiples_of_rank(1, dtype).narrow(1, 0, 2);
  EXPECT_TRUE(at::equal(group.all_gather(part, 1), at::cat({first, second}, 1)));
  at::Tensor whole = at::empty({6, 4}, own.options());
  group.all_gather_into(whole, own);
  EXPECT_TRUE(at::equal(whole, expected));
  at::Tensor x = own.clone();
  group.broadcast(x, 1);
  EXPECT_TRUE(at::equal(x, multiples_of_rank(1, dtype)));
  group.send(own, 1 - group.rank());
  at::Tensor got = at::empty_like(own);
  group.receive(got, 1 - group.rank());
  EXPECT_TRUE(at::equal(got, multiples_of_rank(1 - group.rank(), dtype)));
}

TEST_P(CapabilitiesOn, UnsignedIntegersAreMovedAndNotReduced) {
  on_two([](World& world) {
    for (const at::ScalarType dtype : {at::kUInt16, at::kUInt32, at::kUInt64}) {
      expect_moved(world.group(), dtype);
      at::Tensor x = multiples_of_rank(world.rank(), dtype);
      EXPECT_THROW(world.group().all_reduce(x), core::ShapeError);
      EXPECT_THROW(world.group().reduce_scatter(x, 1), core::ShapeError);
    }
    // The group is as good as before.
    expect_moved(world.group(), at::kFloat);
  });
}

}  // namespace
}  // namespace weft::dist
