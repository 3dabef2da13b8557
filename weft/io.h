#pragma once

// weft::io: tensors in files, and load-time sharding. All public headers of this area.
#include "weft/io/load_tensor.h"
#include "weft/io/shard_folder.h"
#include "weft/io/shard_info/function_file.h"
#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/sources.h"
#include "weft/io/tensor_file.h"
#include "weft/io/tensor_folder_writer.h"
