#pragma once

// weft::ops: collectives with gradients. All public headers of this area.
#include "weft/ops/collectives.h"
#include "weft/ops/model_parallel_regions.h"
#include "weft/ops/shared_gradient.h"
