#include "bench/cuda/tile_variants.h"
#include "weft/cuda/kernels/tile_product.h"

namespace weft::bench {
namespace {

using cuda::Tiling;

template <class Unit>
constexpr TileVariant kVariants[] = {
    {"128x128, warps 64x32, 2 parts", cuda::launch_tiles<Unit, Tiling<2, 4, 4, 2, 1>, 2>},
    {"128x128, warps 64x32, 3 parts", cuda::launch_tiles<Unit, Tiling<2, 4, 4, 2, 1>, 3>},
    {"128x128, warps 32x64, 2 parts", cuda::launch_tiles<Unit, Tiling<4, 2, 2, 4, 1>, 2>},
    {"128x64, warps 64x32, 2 parts", cuda::launch_tiles<Unit, Tiling<2, 2, 4, 2, 2>, 2>},
    {"64x128, warps 32x64, 2 parts", cuda::launch_tiles<Unit, Tiling<2, 2, 2, 4, 2>, 2>},
    {"64x64, warps 32x32, 2 parts", cuda::launch_tiles<Unit, Tiling<2, 2, 2, 2, 3>, 2>},
};

}  // namespace

std::span<const TileVariant> bfloat16_variants() {
  return kVariants<cuda::NumberUnit<cuda::Dtype::kBF16>>;
}
std::span<const TileVariant> four_bit_variants() { return kVariants<cuda::PackedUnit<4>>; }

}  // namespace weft::bench
