#include "weft/cuda/kernels/experts/experts.h"
#include "weft/cuda/kernels/experts/experts_parts.h"
#include "weft/cuda/kernels/launch.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;

struct GateTilesCall {
  const ExpertTile* tiles;
  const float* gate;
  const float* up;
  const float* gate_bias;
  const float* up_bias;
  float* hidden;
  int32_t width;
  Gating gating;
};

__device__ int32_t own_column() {
  return static_cast<int32_t>(blockIdx.y) * kThreads + static_cast<int32_t>(threadIdx.x);
}

// Blocks along x for tiles, along y for runs of columns.
__global__ void gate_tiles(GateTilesCall call) {
  const ExpertTile tile = call.tiles[blockIdx.x];
  const int32_t i = own_column();
  if (i >= call.width || tile.count == 0) return;
  const int64_t at_bias = static_cast<int64_t>(tile.expert) * call.width + i;
  const float gate_bias = number_or_zero(call.gate_bias, at_bias);
  const float up_bias = number_or_zero(call.up_bias, at_bias);
  for (int32_t slot = tile.first; slot < tile.first + tile.count; ++slot) {
    const int64_t at = static_cast<int64_t>(slot) * call.width + i;
    call.hidden[at] = gated(call.gate[at] + gate_bias, call.up[at] + up_bias, call.gating);
  }
}

__device__ float shared_part(const ExpertSum& call, int64_t row, int32_t column) {
  if (call.shared == nullptr) return 0;
  const float whole =
      call.shared[row * call.width + column] + number_or_zero(call.shared_bias, column);
  return call.shared_gate == nullptr ? whole : whole / (1 + expf(-call.shared_gate[row]));
}

// Blocks along x for rows, along y for runs of columns.
__global__ void add_up_each(ExpertSum call) {
  const int32_t i = own_column();
  if (i >= call.width) return;
  const int64_t row = blockIdx.x;
  float sum = shared_part(call, row, i);
  for (int64_t pair = row * call.top_k; pair < (row + 1) * call.top_k; ++pair) {
    const int64_t slot = call.slots[pair];
    if (slot < 0) continue;
    const float weight = call.weights[pair];
    sum = fmaf(weight, call.y[slot * call.width + i], sum);
    if (call.bias == nullptr) continue;
    const int64_t place = call.places[call.chosen[pair]];
    sum = fmaf(weight, call.bias[place * call.width + i], sum);
  }
  call.sum[row * call.width + i] = sum;
}

bool have_one_form(const ExpertMatrices& a, const ExpertMatrices& b) {
  return a.form.out == b.form.out && a.form.in == b.form.in && a.form.bits == b.form.bits &&
         a.form.numbers == b.form.numbers && a.form.units_per_group == b.form.units_per_group;
}

}  // namespace

bool can_take_few_rows(const ExpertMatrices& gate, const ExpertMatrices& up,
                       const ExpertMatrices& down) {
  return gate.are_alike && up.are_alike && down.are_alike && have_one_form(gate, up);
}

void compute_hidden(const ExpertRows& rows, const ExpertHidden& call, const float* x,
                    const int32_t* row_of_slot) {
  if (rows.num_tiles == 0) return;
  if (rows.are_few()) {
    return hidden_of_few({{call.gate, call.up},
                          call.gate_bias,
                          call.up_bias,
                          call.gating,
                          x,
                          row_of_slot,
                          rows.tiles,
                          call.hidden},
                         rows);
  }
  products_of_tiles({{call.gate, call.up}, {call.hidden, call.room}, 2, x, row_of_slot, rows.tiles},
                    rows.num_tiles);
  const int32_t width = call.gate.form.out;
  launch(gate_tiles, dim3(static_cast<unsigned>(rows.num_tiles), blocks_of(width, kThreads)),
         kThreads,
         GateTilesCall{rows.tiles, call.hidden, call.room, call.gate_bias, call.up_bias,
                       call.hidden, width, call.gating});
}

void multiply_hidden(const ExpertRows& rows, const ExpertProduct& product, const float* hidden) {
  if (rows.num_tiles == 0) return;
  if (rows.are_few()) {
    return products_of_few({{product.w}, hidden, rows.tiles, product.y}, rows);
  }
  products_of_tiles({{product.w, {}}, {product.y, nullptr}, 1, hidden, nullptr, rows.tiles},
                    rows.num_tiles);
}

void add_up_experts(const ExpertSum& call) {
  if (call.rows == 0) return;
  launch(add_up_each, dim3(static_cast<unsigned>(call.rows), blocks_of(call.width, kThreads)),
         kThreads, call);
}

}  // namespace weft::cuda
