#pragma once

// weft::shard: which elements of a whole each rank holds. All public headers of this area.
#include "weft/shard/heads.h"
#include "weft/shard/layout.h"
#include "weft/shard/split.h"
