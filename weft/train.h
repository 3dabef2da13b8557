#pragma once

// weft::train: partially sharded data parallel training. All public headers of this area.
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"
#include "weft/train/schedule.h"
