#include "weft/quant/quantized_matrix.h"

#include "weft/core/error.h"

namespace weft::quant {

std::vector<QuantizedPart> parts_of(QuantizedMatrix& w) {
  const auto common = [](auto& matrix) {
    return std::vector<QuantizedPart>{{"packed", &matrix.packed}, {"scales", &matrix.scales}};
  };
  auto parts = std::visit(common, w);
  auto* affine = std::get_if<AffineTensor>(&w);
  if (affine != nullptr && !affine->is_symmetric()) parts.push_back({"offsets", &affine->offsets});
  return parts;
}

void check_quantized(const QuantizedMatrix& w, const std::string& where) {
  if (const auto* affine = std::get_if<AffineTensor>(&w)) return check_affine(*affine, where);
  check_microscaled(std::get<MicroscaledTensor>(w), where);
}

int64_t out_features(const QuantizedMatrix& w) {
  return std::visit([](const auto& matrix) { return matrix.out_features(); }, w);
}

int64_t in_features(const QuantizedMatrix& w) {
  return std::visit([](const auto& matrix) { return matrix.in_features(); }, w);
}

int64_t group_size(const QuantizedMatrix& w) {
  return std::visit([](const auto& matrix) { return matrix.group_size; }, w);
}

int64_t num_bytes(const QuantizedMatrix& w) {
  return std::visit([](const auto& matrix) { return matrix.num_bytes(); }, w);
}

Scheme scheme_of(const QuantizedMatrix& w) {
  if (const auto* affine = std::get_if<AffineTensor>(&w)) {
    return {Mode::kAffine, affine->bits, affine->group_size, affine->scales.scalar_type()};
  }
  const auto& other = std::get<MicroscaledTensor>(w);
  return {other.mode, other.bits(), other.group_size};
}

QuantizedMatrix quantize(const at::Tensor& w, const Scheme& scheme) {
  check_scheme(scheme, "quant.quantize");
  if (scheme.mode != Mode::kAffine) return quantize_microscaled(w, scheme.mode);
  return quantize_affine(w, scheme.bits, scheme.group_size, scheme.scale_dtype);
}

at::Tensor dequantize(const QuantizedMatrix& w, at::ScalarType dtype) {
  return std::visit([&](const auto& matrix) { return dequantize(matrix, dtype); }, w);
}

at::Tensor matmul(const at::Tensor& x, const QuantizedMatrix& w) {
  if (const auto* affine = std::get_if<AffineTensor>(&w)) return affine_matmul(x, *affine);
  return microscaled_matmul(x, std::get<MicroscaledTensor>(w));
}

at::Tensor rows(const QuantizedMatrix& w, const at::Tensor& indices) {
  if (const auto* affine = std::get_if<AffineTensor>(&w)) return affine_rows(*affine, indices);
  return microscaled_rows(std::get<MicroscaledTensor>(w), indices);
}

}  // namespace weft::quant
