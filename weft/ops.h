#pragma once

// weft::ops: collectives with gradients. All public headers of this area.
#include "weft/ops/collectives.h"
#include "weft/ops/shared_gradient.h"
