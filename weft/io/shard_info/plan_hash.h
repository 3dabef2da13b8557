#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// FNV-1a with 64 bits (Fowler, Noll, Vo), over values in a fixed byte order.
class PlanHash {
 public:
  void add(uint64_t number);
  /// With its length, so that what follows can't be taken for a part of it.
  void add(std::string_view text);
  void add(const std::vector<int64_t>& numbers);
  void add(const TensorMeta& tensor);
  void add(const View& view);
  void add(const PlannedParam& param);

  uint64_t value() const { return value_; }

 private:
  void add_byte(uint8_t byte);
  void add_node(const ViewNode& node);

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace weft::io
