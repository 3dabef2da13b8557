#include "weft/dist/shm/reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/dist/oracle.h"
#include "weft/core/error.h"

namespace weft::dist {
namespace {

struct InstructionSet {
  const char* name;
  KernelLookup lookup;
};

// Those that this machine can run.
std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets = {{"baseline", lookup_baseline}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    sets.push_back({"avx2", lookup_avx2});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    sets.push_back({"avx512", lookup_avx512});
  }
  return sets;
}

at::Tensor run(ReduceKernel kernel, const std::vector<at::Tensor>& inputs) {
  std::vector<const std::byte*> sources;
  for (const auto& x : inputs) sources.push_back(static_cast<const std::byte*>(x.const_data_ptr()));
  at::Tensor out = at::empty_like(inputs[0]);
  kernel(static_cast<std::byte*>(out.mutable_data_ptr()), sources.data(),
         static_cast<int>(sources.size()), out.numel());
  return out;
}

// Equal, a NaN being equal to a NaN.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a.to(at::kDouble), b.to(at::kDouble), 0, 0, true);
}

at::Tensor all_halves(at::ScalarType dtype) {
  return at::arange(0, 65536, at::kInt).to(at::kShort).view(dtype);
}

TEST(ShmReduce, EqualsAtenForAllTypesAndReductions) {
  for (const auto& set : instruction_sets()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar,
                                       at::kByte, at::kShort, at::kInt, at::kLong}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kProduct}) {
        if (op == ReduceOp::kAverage && !c10::isFloatingType(dtype)) continue;
        const auto kernel_op = static_cast<ShmReduce>(static_cast<int>(op) + 1);
        for (int ranks = 1; ranks <= 5; ++ranks) {
          const auto inputs = test::inputs_of(ranks, {2055}, dtype, false);
          EXPECT_TRUE(same(run(set.lookup(dtype, kernel_op), inputs), test::reduced(inputs, op)))
              << set.name << " " << dtype << " " << reduce_name(kernel_op) << " " << ranks;
        }
      }
    }
  }
}

// Every half-precision number, through float and back: infinities, NaN and subnormals too.
TEST(ShmReduce, WidensAndRoundsEveryHalfRight) {
  for (const auto& set : instruction_sets()) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      const at::Tensor x = all_halves(dtype);
      EXPECT_TRUE(same(run(set.lookup(dtype, ShmReduce::kMax), {x}), x)) << set.name << dtype;
      const at::Tensor y = x.roll(12345);
      EXPECT_TRUE(same(run(set.lookup(dtype, ShmReduce::kSum), {x, y}),
                       (x.to(at::kFloat) + y.to(at::kFloat)).to(dtype)))
          << set.name << dtype;
    }
  }
}

TEST(ShmReduce, GivesTheSameBitsWithEveryInstructionSet) {
  const auto inputs = test::inputs_of(3, {4099}, at::kBFloat16, false);
  const at::Tensor expected = run(lookup_baseline(at::kBFloat16, ShmReduce::kSum), inputs);
  for (const auto& set : instruction_sets()) {
    EXPECT_TRUE(at::equal(run(set.lookup(at::kBFloat16, ShmReduce::kSum), inputs), expected));
  }
}

TEST(ShmReduce, LetsNaNWin) {
  const at::Tensor nan = at::full({9}, std::numeric_limits<float>::quiet_NaN());
  for (const auto& set : instruction_sets()) {
    for (const ShmReduce op : {ShmReduce::kMin, ShmReduce::kMax}) {
      EXPECT_TRUE(run(set.lookup(at::kFloat, op), {nan, at::ones({9})}).isnan().all().item<bool>());
      EXPECT_TRUE(run(set.lookup(at::kFloat, op), {at::ones({9}), nan}).isnan().all().item<bool>());
    }
  }
}

TEST(ShmReduce, ReducesInPlaceOfAnySource) {
  for (const auto& set : instruction_sets()) {
    for (size_t place = 0; place < 3; ++place) {
      auto inputs = test::inputs_of(3, {3001}, at::kFloat, false);
      const at::Tensor expected = test::reduced(inputs, ReduceOp::kSum);
      std::vector<const std::byte*> sources;
      for (auto& x : inputs) sources.push_back(static_cast<std::byte*>(x.mutable_data_ptr()));
      set.lookup(at::kFloat, ShmReduce::kSum)(
          static_cast<std::byte*>(inputs[place].mutable_data_ptr()), sources.data(), 3, 3001);
      EXPECT_TRUE(at::equal(inputs[place], expected)) << set.name << " " << place;
    }
  }
}

TEST(ShmReduce, TakesBoolAsAnyAndAll) {
  const at::Tensor a = at::tensor({0, 0, 1, 1}).to(at::kBool);
  const at::Tensor b = at::tensor({0, 1, 0, 1}).to(at::kBool);
  for (const auto& set : instruction_sets()) {
    EXPECT_TRUE(at::equal(run(set.lookup(at::kBool, ShmReduce::kSum), {a, b}), a.logical_or(b)));
    EXPECT_TRUE(at::equal(run(set.lookup(at::kBool, ShmReduce::kMin), {a, b}), a.logical_and(b)));
  }
}

TEST(ShmReduce, RefusesOtherTypes) {
  try {
    find_reduce_kernel(at::kComplexFloat, ShmReduce::kSum);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::ShapeError& error) {
    EXPECT_EQ(
        std::string(error.what()).rfind("dist.shm: sum of ComplexFloat: expected float32,", 0), 0U);
  }
  EXPECT_THROW(find_reduce_kernel(at::kInt, ShmReduce::kAverage), core::ShapeError);
}

}  // namespace
}  // namespace weft::dist
