#pragma once

#include <cstddef>
#include <vector>

/// Which matrix gets how many bits, so that all take no more than they may and little is lost.
namespace weft::models {

/// One form that a matrix can have.
struct BitChoice {
  /// Of all its numbers together.
  double bits = 0;
  double loss = 0;
  /// Which of the caller's forms it is.
  size_t form = 0;
};

/// The form of each matrix among its `choices`, of which there is one at least. All start with the
/// fewest bits, then those are raised of which a bit saves most, until all take `limit` bits for
/// each of `numbers` numbers, with `taken`, the bits of whatever else there is. Throws ConfigError
/// for a limit that even the smallest forms exceed, naming the least number of bits for each
/// number.
std::vector<size_t> forms_within(double limit, double taken, double numbers,
                                 std::vector<std::vector<BitChoice>> choices);

}  // namespace weft::models
