#include "weft/dist/backends/data_proof.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/sha256.h"

namespace weft::dist {
namespace {

at::Tensor tensor_of(std::string_view text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  const auto* first = bytes.const_data_ptr<uint8_t>();
  return {first, first + bytes.numel()};
}

// Of the rank `from`, which knows the key, in answer to the challenge of the rank `to`.
std::string answer_of(std::string_view key, int from, int to, std::string_view challenge) {
  return core::hmac_sha256(key, core::join("data ", from, ' ', to, ' ', challenge));
}

// Gives each rank its text, and returns what each has given to this one.
std::vector<std::string> exchange(c10d::Backend& backend, const std::vector<std::string>& texts,
                                  int tag, std::chrono::milliseconds timeout) {
  std::vector<at::Tensor> received;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int rank = 0; rank < backend.getSize(); ++rank) {
    received.push_back(at::empty({static_cast<int64_t>(core::kSha256Bytes)}, at::kByte));
    if (rank == backend.getRank()) continue;
    std::vector<at::Tensor> out = {tensor_of(texts[static_cast<size_t>(rank)])};
    std::vector<at::Tensor> in = {received.back()};
    works.push_back(backend.recv(in, rank, tag));
    works.push_back(backend.send(out, rank, tag));
  }
  for (const auto& work : works) work->wait(timeout);
  std::vector<std::string> all;
  for (const at::Tensor& bytes : received) all.push_back(text_of(bytes));
  return all;
}

}  // namespace

void prove_key_between(c10d::Backend& backend, const std::string& key, const std::string& where,
                       std::chrono::milliseconds timeout) {
  if (key.empty()) return;
  constexpr int kChallengeTag = 1;
  constexpr int kAnswerTag = 2;
  const int own = backend.getRank();
  std::vector<std::string> ours, answers;
  for (int rank = 0; rank < backend.getSize(); ++rank) {
    ours.push_back(core::random_bytes(core::kSha256Bytes));
  }
  const auto theirs = exchange(backend, ours, kChallengeTag, timeout);
  for (int rank = 0; rank < backend.getSize(); ++rank) {
    answers.push_back(answer_of(key, own, rank, theirs[static_cast<size_t>(rank)]));
  }
  const auto given = exchange(backend, answers, kAnswerTag, timeout);
  for (int rank = 0; rank < backend.getSize(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    const bool knows =
        rank == own || core::equal_in_constant_time(given[at], answer_of(key, rank, own, ours[at]));
    core::check<core::CommError>(knows, where, ": who answers as rank ", rank,
                                 " of the group does not know the job's key; is it another job's, "
                                 "or a stranger?");
  }
}

}  // namespace weft::dist
