#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/dist/group.h"

namespace weft::train {

/// What a rank is about to do with the units of a ShardedModule.
struct UnitRequest {
  enum class Kind : uint8_t {
    /// It computes with `unit`; kNone: it asks for nothing.
    kUse,
    /// It has come to the end of a backward, of which no unit is needed any more.
    kEndBackward,
    kFinishGradients,
    kPublish,
    kRelease,
  };
  static constexpr int64_t kNone = -1;

  Kind kind = Kind::kUse;
  bool in_backward = false;
  int64_t unit = kNone;
  /// The unit whose backward ended just now, so that its gradients can be summed.
  int64_t left = kNone;
  /// This rank does not hold `unit` gathered.
  bool lacks_unit = false;
  /// This rank does not hold the unit that is likely to follow.
  bool lacks_next = false;
};

/// All ranks' requests of one round.
struct UnitRound {
  /// All ranks do the same. Then lacks_unit and lacks_next say whether any rank lacks them, and
  /// `requests` is empty.
  bool is_agreed = true;
  bool lacks_unit = false;
  bool lacks_next = false;
  /// By rank, where they differ.
  std::vector<UnitRequest> requests = {};

  /// Where requests differ, the units to be gathered, ascending: those that a rank asks for and
  /// lacks.
  std::vector<int64_t> units_to_gather() const;
  /// Some rank still computes.
  bool has_use() const;
};

/// Exchanges the requests of the group's ranks: a gather or a sum of gradients pairs the same unit
/// only if all ranks have the same one in mind, which sequences that take different ways through a
/// module (experts, early exits) do not grant. One reduction of 32 bytes where the ranks agree, and
/// a gather of as many where they don't. Collective over the group. Throws CommError where ranks
/// wait for each other at different points, e.g. because one has called backward more often.
UnitRound exchange_requests(const dist::Group& group, const UnitRequest& request);

/// Throws CommError naming the first line that differs unless all ranks have the same `lines`, one
/// for each unit. Collective over the group.
void check_same_units(const dist::Group& group, const std::vector<std::string>& lines);

}  // namespace weft::train
