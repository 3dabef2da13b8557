#pragma once

// weft::quant: quantized matrices and their products. All public headers of this area.
#include "weft/quant/affine.h"
#include "weft/quant/matmul.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/quant/scheme.h"
