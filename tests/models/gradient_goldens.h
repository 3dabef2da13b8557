#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/family_files.h"
#include "tests/models/model_files.h"
#include "weft/core/files/file.h"
#include "weft/models/load/load.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::test {

/// What tools/make_gradient_goldens.py wrote, by golden checkpoint.
inline const nlohmann::json& gradient_goldens() {
  static const auto goldens =
      nlohmann::json::parse(core::read_text_file(model_data("gradients.json"), 1 << 20));
  return goldens;
}

/// A model with the gradients of the loss of its golden batch.
struct DifferentiatedModel {
  std::shared_ptr<models::CausalLM> model;
  double loss = 0;
};

inline at::Tensor rows_of(const nlohmann::json& rows) {
  std::vector<at::Tensor> made;
  for (const auto& row : rows) made.push_back(at::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(made);
}

/// Collective over `group`.
inline DifferentiatedModel differentiated(const std::string& name, const dist::Group& group) {
  models::LoadOptions options;
  options.is_trainable = true;
  const auto file = io::TensorFile::open(family_path(name));
  const auto model = models::load_model(*file, group, options).model;
  const nlohmann::json& golden = gradient_goldens().at(name);
  const at::Tensor hidden = model->forward(models::TokenBatch{rows_of(golden.at("ids"))});
  const at::Tensor loss = model->loss_sum(hidden, rows_of(golden.at("targets")));
  loss.backward();
  return {model, loss.item<double>()};
}

/// Whether a gradient of a whole parameter is the golden one, by its sum times a wave and its norm.
inline bool is_golden(const at::Tensor& gradient, const nlohmann::json& golden) {
  const at::Tensor flat = gradient.to(at::kDouble).reshape({-1});
  const at::Tensor wave = (at::arange(flat.numel(), at::kDouble) * 0.7 + 0.3).sin();
  const auto norm = golden.at(1).get<double>();
  const double error = 1e-4 * norm + 1e-7;
  return std::abs((flat * wave).sum().item<double>() - golden.at(0).get<double>()) <= error &&
         std::abs(flat.norm().item<double>() - norm) <= error;
}

/// The parameters of a whole model whose gradients are not golden, or have none, and those that
/// only the published implementation has.
inline std::vector<std::string> wrong_gradients(models::CausalLM& model, const std::string& name) {
  const nlohmann::json& golden = gradient_goldens().at(name).at("gradients");
  std::set<std::string> others;
  for (const auto& each : golden.items()) others.insert(each.key());
  std::vector<std::string> wrong;
  for (const nn::ParameterInfo& info : nn::describe_parameters(model)) {
    const bool is_known = others.erase(info.name) > 0;
    if (!is_known || !is_golden(info.tensor.grad(), golden.at(info.name)))
      wrong.push_back(info.name);
  }
  wrong.insert(wrong.end(), others.begin(), others.end());
  return wrong;
}

}  // namespace weft::test
