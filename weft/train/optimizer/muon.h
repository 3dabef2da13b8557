#pragma once

#include <memory>
#include <vector>

#include "weft/train/optimizer/optimizer.h"

namespace weft::train {

/// Muon of parameters that are cut in any way: a matrix's momentum is made whole by one all-reduce,
/// made orthogonal by one of the ranks, which take turns, and broadcast by it; so every mesh gives
/// the same update, and the products are shared out over the ranks. Beside its state, a rank needs
/// memory for a few matrices at a time. State of such a matrix is one value for each element
/// ("momentum"); what options.rule does not name has AdamW's. Tensors on the CPU. Collective over
/// `group`. Throws ConfigError for options out of range and tensors elsewhere.
std::unique_ptr<Optimizer> make_muon(const MuonOptions& options, std::vector<OwnedSlice> slices,
                                     const dist::Group& group);

/// What is near to the matrix U V^T of `matrix` = U S V^T, in float32: singular values end between
/// about 0.7 and 1.2, those far smaller than the largest below. A quintic Newton-Schulz iteration
/// of Frobenius norm 1 (Jordan 2024, https://kellerjordan.github.io/posts/muon). Shape [rows,
/// columns], as the result's.
at::Tensor orthogonalize(const at::Tensor& matrix, int64_t num_iterations);

}  // namespace weft::train
