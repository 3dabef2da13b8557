#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>

namespace weft::dist {

/// A set of types of elements.
class ScalarTypes {
 public:
  constexpr ScalarTypes() = default;
  constexpr ScalarTypes(std::initializer_list<c10::ScalarType> types) {
    for (const c10::ScalarType type : types) bits_ |= bit(type);
  }
  static constexpr ScalarTypes all() {
    ScalarTypes types;
    types.bits_ = ~uint64_t{0};
    return types;
  }

  constexpr bool has(c10::ScalarType type) const { return (bits_ & bit(type)) != 0; }

 private:
  static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64);
  static constexpr uint64_t bit(c10::ScalarType type) {
    return uint64_t{1} << static_cast<uint8_t>(type);
  }

  uint64_t bits_ = 0;
};

/// What a group's backend does by itself with tensors of one kind of device. Group makes up for the
/// rest. It belongs to a group, not to a row of the table: a hierarchical group whose ranks are on
/// one host is one of shm.
struct Capabilities {
  /// all_gather takes parts whose sizes differ between the ranks; otherwise they are padded.
  bool unequal_pieces = false;
  /// gather and scatter refuse pieces that don't fit what the other side expects, so that those of
  /// different ranks may differ in size; otherwise equal sizes are what a check can ask for.
  bool compares_pieces = false;
  /// reduce_scatter takes unequal pieces, too, and moves no more than each rank's pieces for the
  /// others; otherwise Group exchanges the pieces and adds them itself.
  bool reduce_scatter = false;
  /// Sums, products and averages of half types would be rounded at each step, so that they are to
  /// be computed in float32 instead.
  bool rounds_halves_often = false;
  /// The ranks move bytes through memory that all of them map.
  bool shared_memory = false;
  /// Its destructor waits for what was begun, which a peer that is gone never ends.
  bool waits_in_destructor = false;
  /// What it reduces. Group widens smaller integers and bools that are not among them.
  ScalarTypes reduces = ScalarTypes::all();
  /// What it moves. Others travel as a type of the same size that is among them.
  ScalarTypes moves = ScalarTypes::all();
};

}  // namespace weft::dist
