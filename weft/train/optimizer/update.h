#pragma once

#include <cstdint>

namespace weft::train {

/// What an update of a step multiplies and adds, rounded to float32 once for all elements. Names as
/// in the papers; an optimizer uses some.
struct UpdateNumbers {
  float gradient_scale = 1;
  float learning_rate = 0;
  /// What is left of a parameter after weight decay: 1 - rate * decay. Set for each run.
  float keep = 1;
  float beta1 = 0;
  float beta2 = 0;
  /// 1 - beta, rounded from double.
  float rest1 = 1;
  float rest2 = 1;
  float epsilon = 0;
  /// AdamW: what the second moment's root is multiplied by, and rate over the first's correction.
  float root_correction2 = 1;
  float step_size = 0;
};

/// Elements of a run: contiguous, none overlaps another. `second` may be null.
struct UpdateSpan {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  int64_t length = 0;
};

using UpdateFunction = void (*)(const UpdateSpan&, const UpdateNumbers&);

/// One pass over memory each. Only +, -, *, / and sqrt, each rounded by itself, so that an
/// element's result depends neither on its place nor on the machine.
void update_adamw(const UpdateSpan& span, const UpdateNumbers& numbers);
void update_sgd(const UpdateSpan& span, const UpdateNumbers& numbers);
void update_sgd_nesterov(const UpdateSpan& span, const UpdateNumbers& numbers);
void update_lion(const UpdateSpan& span, const UpdateNumbers& numbers);

/// The loops of Adafactor, over one row's part: gradients g, factors r of the row (with the scale
/// of the gradient) and c of the columns.
///
/// Sum of squares.
double sum_of_squares(const float* values, int64_t length);
/// to[i] += (g[i] * scale)^2 + epsilon
void add_squares(const float* gradient, float scale, double epsilon, double* to, int64_t length);
/// Sum of (g[i] * r * c[i])^2.
double sum_of_update_squares(const float* gradient, float row, const float* columns,
                             int64_t length);
/// master[i] = master[i] * keep - rate * g[i] * r * c[i]
void apply_factored(const UpdateSpan& span, float row, const float* columns, float keep,
                    float rate);
/// The same with momentum in span.first: m = beta m + (1 - beta) update.
void apply_factored_with_momentum(const UpdateSpan& span, float row, const float* columns,
                                  const UpdateNumbers& numbers);

}  // namespace weft::train
