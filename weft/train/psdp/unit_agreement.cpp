#include "weft/train/psdp/unit_agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/train/gather_texts.h"

namespace weft::train {
namespace {

using core::check;
using core::CommError;
using Kind = UnitRequest::Kind;

constexpr int kUnitBits = 24;
constexpr int64_t kUnitMask = (int64_t{1} << kUnitBits) - 1;

// What must be equal for the ranks to agree, as one number.
int64_t key_of(const UnitRequest& request) {
  return (static_cast<int64_t>(request.kind) << (2 * kUnitBits + 1)) |
         (int64_t{request.in_backward} << (2 * kUnitBits)) | ((request.unit + 1) << kUnitBits) |
         (request.left + 1);
}

UnitRequest request_of(int64_t key, bool lacks_unit) {
  UnitRequest request;
  request.kind = static_cast<Kind>(key >> (2 * kUnitBits + 1));
  request.in_backward = ((key >> (2 * kUnitBits)) & 1) != 0;
  request.unit = ((key >> kUnitBits) & kUnitMask) - 1;
  request.left = (key & kUnitMask) - 1;
  request.lacks_unit = lacks_unit;
  return request;
}

const char* text_of(Kind kind) {
  constexpr std::array kTexts = {"a use of a unit", "the end of backward()", "finish_gradients()",
                                 "publish()", "release()"};
  return kTexts[static_cast<size_t>(kind)];
}

std::vector<UnitRequest> gather_requests(const dist::Group& group, const UnitRequest& own) {
  const at::Tensor mine = at::tensor({key_of(own), int64_t{own.lacks_unit}}, at::kLong);
  at::Tensor all = at::empty({group.size() * 2}, at::kLong);
  group.all_gather_into(all, mine);
  const int64_t* next = all.const_data_ptr<int64_t>();
  std::vector<UnitRequest> requests;
  for (int64_t rank = 0; rank < group.size(); ++rank, next += 2) {
    requests.push_back(request_of(next[0], next[1] != 0));
  }
  return requests;
}

// The ranks' largest numbers, and whether the first one is the same on all of them.
struct Most {
  bool are_equal;
  std::vector<int64_t> numbers;
};

Most most_of(const dist::Group& group, std::vector<int64_t> numbers) {
  numbers.push_back(-numbers.front());
  at::Tensor most = at::tensor(numbers, at::kLong);
  group.all_reduce(most, dist::ReduceOp::kMax);
  const int64_t* found = most.const_data_ptr<int64_t>();
  return {found[0] == -found[most.numel() - 1], {found, found + most.numel() - 1}};
}

std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a), lines_b(b);
  std::string line_a, line_b;
  while (line_a == line_b && (lines_a || lines_b)) {
    if (!std::getline(lines_a, line_a)) line_a = "no further unit";
    if (!std::getline(lines_b, line_b)) line_b = "no further unit";
  }
  return {line_a, line_b};
}

void check_same_end(const dist::Group& group, const std::vector<UnitRequest>& requests) {
  for (size_t rank = 1; rank < requests.size(); ++rank) {
    check<CommError>(requests[rank].kind == requests[0].kind, "train.ShardedModule: ranks 0 and ",
                     rank, " of group ", group.name(), ": expected the same calls, got ",
                     text_of(requests[0].kind), " and ", text_of(requests[rank].kind),
                     "; call backward() equally often on all ranks of the mesh");
  }
}

}  // namespace

std::vector<int64_t> UnitRound::units_to_gather() const {
  std::vector<int64_t> units;
  for (const UnitRequest& request : requests) {
    if (request.unit != UnitRequest::kNone && request.lacks_unit) units.push_back(request.unit);
  }
  std::ranges::sort(units);
  const auto repeated = std::ranges::unique(units);
  units.erase(repeated.begin(), repeated.end());
  return units;
}

bool UnitRound::has_use() const {
  return std::ranges::find(requests, Kind::kUse, &UnitRequest::kind) != requests.end();
}

UnitRound exchange_requests(const dist::Group& group, const UnitRequest& request) {
  const Most most =
      most_of(group, {key_of(request), int64_t{request.lacks_unit}, int64_t{request.lacks_next}});
  if (most.are_equal) return {true, most.numbers[1] != 0, most.numbers[2] != 0};
  UnitRound round{false, false, false, gather_requests(group, request)};
  if (!round.has_use()) check_same_end(group, round.requests);
  return round;
}

void check_same_units(const dist::Group& group, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  const uint64_t hash = core::hash_bytes(std::as_bytes(std::span(text)));
  // One bit less, so that its negative is a number, too.
  if (most_of(group, {static_cast<int64_t>(hash >> 1)}).are_equal) return;
  const std::vector<std::string> texts = gather_texts(group, text);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto [expected, got] = first_difference(texts[0], texts[rank]);
    core::fail<CommError>("train.shard_module: ranks 0 and ", rank, " of group ", group.name(),
                          ": expected the same units, got ", expected, " and ", got,
                          "; give units in one order on all ranks");
  }
}

}  // namespace weft::train
