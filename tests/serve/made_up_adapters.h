#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/tensor_checks.h"
#include "weft/models/adapter.h"

namespace weft::serve::test {

/// An adapter of some layers of the model of set-up (width 576, 9 heads of 64, 3 kv heads, ffn
/// 1536) that changes what it says; others by `seed`.
class MadeUpAdapters : public models::AdapterSource {
 public:
  MadeUpAdapters(uint64_t seed, int64_t rank)
      : AdapterSource("made-up", layers_of(seed, rank)), seed_(seed) {}

  nn::LoraFactors read(const models::AdapterLayer& layer) const override {
    const uint64_t seed = seed_ * 1000 + layer.place.size() + static_cast<uint64_t>(layer.in);
    return {weft::test::seeded({layer.rank, layer.in}, seed, at::kFloat) * 0.06,
            weft::test::seeded({layer.out, layer.rank}, seed + 1, at::kFloat) * 0.06, layer.scale};
  }

 private:
  // The second one leaves out what the first one has, and the other way round.
  static std::vector<models::AdapterLayer> layers_of(uint64_t seed, int64_t rank) {
    std::vector<models::AdapterLayer> layers;
    const auto add = [&](int64_t block, const char* name, int64_t in, int64_t out) {
      const std::string place = "model.layers." + std::to_string(block) + "." + name;
      layers.push_back({place, rank, in, out, 2.0});
    };
    for (int64_t block = 0; block < 30; block += 3) {
      add(block, "self_attn.q_proj", 576, 576);
      add(block, "mlp.down_proj", 1536, 576);
      add(block + 1, "self_attn.o_proj", 576, 576);
      if (seed % 2 == 0) add(block, "self_attn.k_proj", 576, 192);
      if (seed % 2 == 1) add(block, "self_attn.v_proj", 576, 192);
      if (seed % 2 == 1) add(block + 1, "mlp.gate_proj", 576, 1536);
      if (seed % 2 == 0) add(block + 2, "mlp.up_proj", 576, 1536);
    }
    return layers;
  }

  uint64_t seed_;
};

}  // namespace weft::serve::test
