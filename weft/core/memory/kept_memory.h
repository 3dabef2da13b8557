#pragma once

namespace weft::core {

/// As long as one of these lives, what is given back of core::new_memory stays with this process
/// and is taken again first, with whatever it holds. For loading, which reads a matrix, puts it
/// into another order and lets go of what it read: the system clears each page that it hands out,
/// which takes longer than reading into it. The last one to go gives back all that nobody has
/// taken.
class KeptMemory {
 public:
  KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory();
};

}  // namespace weft::core
