#include "weft/cuda/kernels/many_rows.h"
#include "weft/cuda/kernels/tile_product.h"

namespace weft::cuda {
namespace {

// Of each number of x: with two, the error of a product is a few parts in a million.
constexpr int kParts = 2;
// With fewer tiles than this, much of a GPU would have none.
constexpr int64_t kManyTiles = 128;

template <class T>
int64_t tiles_of(std::span<const Product> products, int64_t rows) {
  int64_t tiles = 0;
  for (const Product& product : products) tiles += blocks_of(product.w.out, T::kRowsW);
  return tiles * blocks_of(rows, T::kRowsX);
}

}  // namespace

void multiply_many_rows(std::span<const Product> products, const float* x, int64_t rows) {
  visit_unit(products.front().w, [&]<class Unit>(const Unit& /*unit*/) {
    if (tiles_of<LargeTiling>(products, rows) >= kManyTiles) {
      return launch_tiles<Unit, LargeTiling, kParts>(products, x, rows);
    }
    launch_tiles<Unit, SmallTiling, kParts>(products, x, rows);
  });
}

}  // namespace weft::cuda
