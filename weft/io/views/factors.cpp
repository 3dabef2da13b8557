#include <algorithm>

#include "weft/io/views/view_node.h"

namespace weft::io {

int64_t factors_size(const Factors& factors) {
  int64_t size = 1;
  for (const Factor& factor : factors) size *= factor.count;
  return size;
}

Factors coalesce(const Factors& factors) {
  Factors merged;
  for (const Factor& factor : factors) {
    if (factor.count == 1) continue;
    if (!merged.empty() && merged.back().stride == factor.stride * factor.count) {
      merged.back() = {merged.back().count * factor.count, factor.stride};
    } else {
      merged.push_back(factor);
    }
  }
  return merged;
}

namespace {

// Takes digits for a dim of `size` off the fast end of `left`.
std::optional<Factors> take_fast_digits(Factors& left, int64_t size) {
  Factors taken;
  while (size > 1) {
    const Factor factor = left.back();
    left.pop_back();
    if (size % factor.count == 0) {
      taken.push_back(factor);
      size /= factor.count;
    } else if (factor.count % size == 0) {
      taken.push_back({size, factor.stride});
      left.push_back({factor.count / size, factor.stride * size});
      size = 1;
    } else {
      return std::nullopt;
    }
  }
  std::reverse(taken.begin(), taken.end());
  return taken;
}

void append_shifted(std::vector<FactorPiece>& pieces, std::vector<FactorPiece> more,
                    int64_t start) {
  for (FactorPiece& piece : more) {
    pieces.push_back({std::move(piece.factors), piece.start + start});
  }
}

}  // namespace

std::optional<std::vector<Factors>> split_factors(const Factors& factors,
                                                  std::span<const int64_t> sizes) {
  Factors left = coalesce(factors);
  std::vector<Factors> dims(sizes.size());
  for (size_t i = sizes.size(); i > 0; --i) {
    auto taken = take_fast_digits(left, sizes[i - 1]);
    if (!taken) return std::nullopt;
    dims[i - 1] = std::move(*taken);
  }
  return dims;
}

std::vector<FactorPiece> narrow_factors(const Factors& factors, int64_t start, int64_t length) {
  const Factors digits = coalesce(factors);
  if (digits.empty()) return {{digits, 0}};
  const Factor slowest = digits[0];
  if (digits.size() == 1) {
    return {{coalesce({{length, slowest.stride}}), start * slowest.stride}};
  }
  const Factors rest(digits.begin() + 1, digits.end());
  const int64_t inner = factors_size(rest);
  std::vector<FactorPiece> pieces;
  int64_t row = start / inner;
  if (start % inner != 0) {
    const int64_t head = std::min(length, inner - start % inner);
    append_shifted(pieces, narrow_factors(rest, start % inner, head), row * slowest.stride);
    length -= head;
    ++row;
  }
  if (length >= inner) {
    Factors whole = rest;
    whole.insert(whole.begin(), {length / inner, slowest.stride});
    pieces.push_back({coalesce(whole), row * slowest.stride});
    row += length / inner;
    length %= inner;
  }
  if (length > 0) append_shifted(pieces, narrow_factors(rest, 0, length), row * slowest.stride);
  return pieces;
}

}  // namespace weft::io
