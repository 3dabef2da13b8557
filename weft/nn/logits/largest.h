#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace weft::nn {

/// A number and its place among others. Without gaps, as ranks exchange its bytes.
struct Largest {
  double value = -std::numeric_limits<double>::infinity();
  int64_t place = 0;
};

/// The first of the largest numbers: of minus infinities alone, or of none, minus infinity at 0.
/// NaN, at no place in particular, if one is NaN or plus infinity: as logits, those come from
/// broken weights.
Largest largest(std::span<const float> numbers);

/// The largest numbers from the largest on, of equal ones the first ones, as many as `to` takes;
/// behind the last number minus infinity at 0. NaN in `to`'s first place, and any others behind it,
/// if one is NaN or plus infinity.
void largest(std::span<const float> numbers, std::span<Largest> to);

/// The first of the largest of several, in the order of their places; NaN if one is.
Largest largest(std::span<const Largest> parts);

/// The largest of several lists that are as above, one behind the other, each of as many as `to`
/// takes and in the order of their places.
void largest(std::span<const Largest> lists, std::span<Largest> to);

}  // namespace weft::nn
