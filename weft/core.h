#pragma once

// weft::core: errors, log, strict JSON. All public headers of this area.
#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/core/log.h"
