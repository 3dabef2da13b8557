// The gradients of every family that trains, against transformers', on any number of ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/models/gradient_goldens.h"
#include "tests/nn/parameter_part.h"
#include "tests/ops/tensor_checks.h"

namespace weft::models {
namespace {

using dist::Group;
using test::differentiated;

TEST(Gradients, AreThoseOfThePublishedImplementation) {
  for (const auto& [name, golden] : test::gradient_goldens().items()) {
    const test::DifferentiatedModel whole = differentiated(name, {});
    EXPECT_NEAR(whole.loss, golden.at("loss").get<double>(), 1e-5 * whole.loss) << name;
    EXPECT_EQ(test::wrong_gradients(*whole.model, name), std::vector<std::string>()) << name;
  }
}

void expect_parts_of(CausalLM& whole, CausalLM& part, const Group& group, const std::string& name) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& info : nn::describe_parameters(whole)) {
    gradients.emplace(info.name, info.tensor.grad());
  }
  const std::vector<std::string> partial = part.partial_parameters();
  for (const auto& info : nn::describe_parameters(part)) {
    at::Tensor gradient = info.tensor.grad().clone();
    if (std::ranges::find(partial, info.name) != partial.end()) group.all_reduce(gradient);
    const at::Tensor expected = test::part_of(gradients.at(info.name), info, group.rank());
    EXPECT_LE((gradient - expected).norm().item<double>(),
              1e-3 * expected.norm().item<double>() + 1e-6)
        << name << " " << info.name;
  }
}

TEST(Gradients, OfRanksArePartsOfTheWhole) {
  test::on_ranks(
      [](const Group& group) {
        for (const auto& [name, golden] : test::gradient_goldens().items()) {
          const auto whole = differentiated(name, {}), part = differentiated(name, group);
          EXPECT_NEAR(part.loss, whole.loss, 1e-5 * whole.loss) << name;
          expect_parts_of(*whole.model, *part.model, group, name);
        }
      },
      {2, 3});
}

}  // namespace
}  // namespace weft::models
