#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/train/checkpoint/slices.h"
#include "weft/train/flat_layout.h"
#include "weft/train/optimizer/optimizer.h"

namespace weft::train::testing {

/// Sizes of a training mesh, or a place on it.
struct MeshPlace {
  int64_t replica = 1;
  int64_t data = 1;
  int64_t model = 1;

  int64_t num_ranks() const { return replica * data * model; }
  /// Of world rank `rank` on a mesh of these sizes.
  MeshPlace of(int64_t rank) const {
    return {rank / (data * model), rank / model % data, rank % model};
  }
};

/// A parameter and how the model axis of a mesh cuts it.
struct TestParameter {
  std::string name;
  std::vector<int64_t> sizes;
  enum class Cut { kNone, kSplit, kKvHeads } kind = Cut::kNone;
  shard::Split split = {};

  std::optional<shard::Layout> cut(int64_t model) const {
    if (model == 1 || kind == Cut::kNone) return std::nullopt;
    if (kind == Cut::kKvHeads) return shard::head_layouts(6, 3, sizes[0] / 3, model).kv;
    return shard::make_layout(split, sizes[static_cast<size_t>(split.dim)], model, name);
  }
};

/// Two units of parameters of every kind, with sizes that divide nothing.
inline std::vector<std::vector<TestParameter>> test_units() {
  using Cut = TestParameter::Cut;
  return {{{"embedding", {17, 5}, Cut::kSplit, {0, {}, 1}}, {"scale", {1}}},
          {{"up", {18, 5}, Cut::kSplit, {0, {8, 10}, 2}},
           {"norm", {11}},
           {"down", {5, 13}, Cut::kSplit, {1, {}, 1}},
           {"kv", {9, 5}, Cut::kKvHeads},
           {"bias", {9}, Cut::kSplit, {0, {}, 1}},
           {"cube", {3, 7, 4}, Cut::kSplit, {1, {}, 1}}}};
}

using Wholes = std::map<std::string, at::Tensor>;

/// Random wholes, the same for the same seed.
inline Wholes random_wholes(uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Wholes wholes;
  for (const auto& unit : test_units()) {
    for (const TestParameter& each : unit) {
      wholes[each.name] = at::randn(each.sizes, generator);
    }
  }
  return wholes;
}

/// What a rank owns of all units, in flat buffers.
struct OwnedParts {
  std::vector<OwnedSlice> slices;

  OwnedParts(const MeshPlace& mesh, const MeshPlace& place, double weight_decay) {
    for (const auto& unit : test_units()) add_unit(unit, mesh, place, weight_decay);
  }

 private:
  void add_unit(const std::vector<TestParameter>& unit, const MeshPlace& mesh,
                const MeshPlace& place, double weight_decay) {
    std::vector<Slice> shards;
    std::vector<int64_t> numels;
    for (const TestParameter& each : unit) {
      shards.push_back({each.name, each.sizes, each.cut(mesh.model), place.model, {}});
      numels.push_back(shard_elements(shards.back()));
    }
    const FlatLayout layout(numels, mesh.data, mesh.replica);
    const at::Tensor masters = at::zeros({layout.owned_length()});
    const at::Tensor gradients = at::zeros({layout.owned_length()});
    for (const auto& piece : layout.pieces(layout.owned(place.data, place.replica))) {
      Slice slice = shards[piece.parameter];
      slice.elements = piece.elements;
      const bool decays = slice.sizes.size() >= 2;
      const int64_t length = piece.elements.length;
      slices.push_back({slice, masters.narrow(0, piece.offset, length),
                        gradients.narrow(0, piece.offset, length), decays ? weight_decay : 0});
    }
  }
};

/// The elements of a whole that a slice has: by the definition of a cut.
inline at::Tensor part_of(const at::Tensor& whole, const Slice& slice) {
  const auto places = places_in_whole(slice);
  return whole.flatten().index_select(0, at::tensor(places, at::kLong));
}

inline void set_masters(OwnedParts& parts, const Wholes& wholes) {
  for (OwnedSlice& owned : parts.slices) {
    owned.master.copy_(part_of(wholes.at(owned.slice.name), owned.slice));
  }
}

inline void set_gradients(OwnedParts& parts, const Wholes& wholes) {
  for (OwnedSlice& owned : parts.slices) {
    owned.gradient.copy_(part_of(wholes.at(owned.slice.name), owned.slice));
  }
}

/// Makes wholes of state tensors: by "NAME/STATE". Elements that nobody gave are NaN.
inline void put_in_wholes(Wholes& wholes, const std::vector<StateTensor>& tensors) {
  for (const StateTensor& each : tensors) {
    at::Tensor& whole = wholes[each.slice.name + "/" + each.state];
    if (each.is_whole) {
      whole = each.values.clone();
      continue;
    }
    if (!whole.defined()) whole = at::full(each.slice.sizes, NAN);
    whole.flatten().index_copy_(0, at::tensor(places_in_whole(each.slice), at::kLong), each.values);
  }
}

}  // namespace weft::train::testing
