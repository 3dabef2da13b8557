#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/quant/affine.h"
#include "weft/quant/affine_reference.h"
#include "weft/quant/formats/microscaled.h"
#include "weft/quant/formats/microscaled_reference.h"
#include "weft/quant/kernels/select.h"

namespace weft::quant::test {

/// A golden file, read part by part.
class Golden {
 public:
  explicit Golden(const std::string& name) {
    const core::File file(std::string(WEFT_SOURCE_DIR) + "/tests/quant/data/" + name);
    bytes_.resize(file.size());
    file.read_at(0, bytes_);
  }

  std::vector<std::byte> take_bytes(size_t count) {
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(position_);
    position_ += count;
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  at::Tensor take(at::IntArrayRef shape, at::ScalarType dtype) {
    at::Tensor tensor = at::empty(shape, dtype);
    const auto bytes = take_bytes(tensor.nbytes());
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  bool is_at_end() const { return position_ == bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
  size_t position_ = 0;
};

/// What a random matrix looks like.
struct Format {
  int64_t bits = 4;
  int64_t group_size = 32;
  at::ScalarType dtype = at::kFloat;
  bool is_symmetric = false;

  std::string text() const {
    return std::to_string(bits) + " bits, group " + std::to_string(group_size) + ", " +
           c10::toString(dtype) + (is_symmetric ? ", symmetric" : "");
  }
};

/// Random codes with scales and offsets of either sign.
inline AffineTensor random_affine(const Format& format, int64_t out, int64_t in) {
  AffineTensor w;
  w.bits = format.bits;
  w.group_size = format.group_size;
  w.packed = at::randint(256, {out, in * format.bits / 8}, at::kByte);
  const double step = 2.0 / (1 << format.bits);
  w.scales = (at::randn({out, in / format.group_size}) * step).to(format.dtype);
  if (!format.is_symmetric) {
    w.offsets = at::randn({out, in / format.group_size}).to(format.dtype);
  }
  return w;
}

/// Row `row` of a contiguous matrix.
template <class T>
std::span<T> row_of(const at::Tensor& part, int64_t row) {
  return {part.mutable_data_ptr<T>() + row * part.size(1), static_cast<size_t>(part.size(1))};
}

/// dequantize by the reference, row after row.
inline at::Tensor reference_values(const AffineTensor& w) {
  const at::Tensor scales = w.scales.to(at::kFloat).contiguous();
  const at::Tensor offsets = w.is_symmetric() ? scales * -static_cast<double>(1 << (w.bits - 1))
                                              : w.offsets.to(at::kFloat).contiguous();
  const at::Tensor values = at::empty({w.out_features(), w.in_features()});
  for (int64_t row = 0; row < w.out_features(); ++row) {
    const reference::Row parts{w.bits, w.group_size, row_of<uint8_t>(w.packed, row),
                               row_of<float>(scales, row), row_of<float>(offsets, row)};
    reference::dequantize(parts, row_of<float>(values, row));
  }
  return values;
}

/// The modes of MicroscaledTensor.
constexpr Mode kMicroscaledModes[] = {Mode::kMxfp4, Mode::kMxfp8, Mode::kNvfp4};

/// Random finite elements of either sign, and scales of a few magnitudes. group_size 0: the mode's.
inline MicroscaledTensor random_microscaled(Mode mode, int64_t out, int64_t in,
                                            int64_t group_size = 0) {
  MicroscaledTensor w;
  w.mode = mode;
  w.group_size = group_size == 0 ? mode_info(mode).group_size : group_size;
  w.packed = at::randint(256, {out, in * w.bits() / 8}, at::kByte);
  if (mode == Mode::kMxfp8) w.packed.bitwise_and_(0xFE);
  const at::Tensor scales = at::randint(5, {out, in / w.group_size}, at::kByte);
  w.scales = mode == Mode::kNvfp4 ? scales + 0x36 : scales + 125;
  return w;
}

/// dequantize by the reference, element after element.
inline at::Tensor reference_values(const MicroscaledTensor& w) {
  const at::Tensor values = at::empty({w.out_features(), w.in_features()});
  for (int64_t row = 0; row < w.out_features(); ++row) {
    const auto to = row_of<float>(values, row);
    const auto packed = row_of<uint8_t>(w.packed, row), scales = row_of<uint8_t>(w.scales, row);
    for (size_t k = 0; k < to.size(); ++k) {
      const uint8_t code = reference::code_at(packed, w.bits(), static_cast<int64_t>(k));
      const uint8_t scale = scales[k / static_cast<size_t>(w.group_size)];
      to[k] = reference::scale_value(w.mode, scale) * reference::element_value(w.mode, code);
    }
  }
  return values;
}

/// Calls `action` with every kernel that this machine runs.
template <class Action>
void for_each_kernel(const Action& action) {
  for (const kernels::Kernel* kernel : kernels::all_kernels()) {
    if (!kernel->runs_here()) continue;
    SCOPED_TRACE(kernel->name);
    action(*kernel);
  }
}

/// Runs `action` and returns the message of the E that it throws; fails if it throws none.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

}  // namespace weft::quant::test
