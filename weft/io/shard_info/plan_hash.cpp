#include "weft/io/shard_info/plan_hash.h"

#include "weft/io/views/view_node.h"

namespace weft::io {

void PlanHash::add_byte(uint8_t byte) {
  constexpr uint64_t kPrime = 0x100000001b3;
  value_ = (value_ ^ byte) * kPrime;
}

void PlanHash::add(uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(number >> shift));
}

void PlanHash::add(std::string_view text) {
  add(static_cast<uint64_t>(text.size()));
  for (const char c : text) add_byte(static_cast<uint8_t>(c));
}

void PlanHash::add(const std::vector<int64_t>& numbers) {
  add(static_cast<uint64_t>(numbers.size()));
  for (const int64_t number : numbers) add(static_cast<uint64_t>(number));
}

void PlanHash::add(const TensorMeta& tensor) {
  add(std::string_view(tensor.name));
  add(info(tensor.dtype).name);
  add(tensor.shape);
  add(static_cast<uint64_t>(tensor.file));
  add(tensor.offset);
  add(tensor.num_bytes);
}

void PlanHash::add_node(const ViewNode& node) {
  add(static_cast<uint64_t>(node.children.size()));
  add(static_cast<uint64_t>(node.cat_dim));
  add(node.shape);
  for (const ViewNodePtr& child : node.children) add_node(*child);
  if (!node.is_leaf()) return;
  add(node.tensor->meta);
  add(static_cast<uint64_t>(node.tensor->packing.unit_elements));
  add(static_cast<uint64_t>(node.start));
  for (const Factors& factors : node.dims) {
    add(static_cast<uint64_t>(factors.size()));
    for (const Factor& factor : factors) {
      add(static_cast<uint64_t>(factor.count));
      add(static_cast<uint64_t>(factor.stride));
    }
  }
}

void PlanHash::add(const View& view) { add_node(*view.node()); }

void PlanHash::add(const PlannedParam& param) {
  add(std::string_view(param.name));
  add(static_cast<uint64_t>(param.recipes.size()));
  for (const ShardRecipe& recipe : param.recipes) {
    add(recipe.result);
    add(static_cast<uint64_t>(recipe.eager_steps.size()));
    for (const EagerStep& step : recipe.eager_steps) {
      add(std::string_view(step.name));
      for (const Argument& argument : step.arguments) add(std::string_view(to_text(argument)));
      add(step.input);
      add(step.output.shape);
      add(info(step.output.dtype).name);
    }
  }
}

}  // namespace weft::io
