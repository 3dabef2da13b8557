#pragma once

// weft::models: models from files, on any number of ranks. All public headers of this area.
#include "weft/models/adapter.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/model.h"
