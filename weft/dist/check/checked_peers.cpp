// What CheckedBackend compares between pairs of ranks: pieces of an all-to-all, and messages.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/core/error.h"
#include "weft/dist/check/checked_backend.h"

namespace weft::dist {
namespace {

using core::join;
using Tensors = CheckedBackend::Tensors;

// Goes before each message.
struct MessageHeader {
  int64_t numel = 0;
  int64_t dtype = 0;
  std::array<char, 240> text = {};
};

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(MessageHeader));

MessageHeader header_of(const at::Tensor& x) {
  MessageHeader header;
  header.numel = x.numel();
  header.dtype = static_cast<int64_t>(x.scalar_type());
  const std::string text = tensor_text(x);
  std::copy_n(text.begin(), std::min(text.size(), header.text.size() - 1), header.text.begin());
  return header;
}

std::vector<int64_t> lengths_of(const Tensors& pieces) {
  std::vector<int64_t> lengths;
  for (const at::Tensor& piece : pieces) lengths.push_back(piece.numel());
  return lengths;
}

// Elements of each of the runs of rows that `sizes` cut `x` into; empty: equal ones.
std::vector<int64_t> lengths_of(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                int64_t ranks) {
  std::vector<int64_t> lengths;
  for (int64_t r = 0; sizes.empty() && r < ranks; ++r) lengths.push_back(x.numel() / ranks);
  const int64_t row = x.dim() == 0 || x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  for (const int64_t size : sizes) lengths.push_back(size * row);
  return lengths;
}

}  // namespace

CheckedBackend::WorkPtr CheckedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  Call call = call_of(OpKind::kAllToAll, join(tensors_text(inputs), " to ", shapes_text(outputs)));
  call.agreed = dtype_text(inputs.at(0).scalar_type());
  call.gives = lengths_of(inputs);
  call.takes = lengths_of(outputs);
  return run(std::move(call), options, outputs,
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->alltoall(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_sizes,
                                                      std::vector<int64_t>& input_sizes,
                                                      const c10d::AllToAllOptions& options) {
  Call call = call_of(OpKind::kAllToAll, join(tensor_text(input), " to ", tensor_text(output)));
  call.agreed = dtype_text(input.scalar_type());
  call.gives = lengths_of(input, input_sizes, size_);
  call.takes = lengths_of(output, output_sizes, size_);
  return run(std::move(call), options, {output},
             [this, out = output, in = input, to = output_sizes, from = input_sizes](
                 const auto& o) mutable { return backend_->alltoall_base(out, in, to, from, o); });
}

CheckedBackend::WorkPtr CheckedBackend::send(Tensors& tensors, int destination, int tag) {
  const MessageHeader header = header_of(tensors.at(0));
  at::Tensor bytes = at::empty({kHeaderBytes}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &header, sizeof(header));
  return run_queued(sending_[{destination, tag}], tensors,
                    [this, first = Tensors{bytes}, x = tensors, destination, tag]() mutable {
                      const WorkPtr announced = backend_->send(first, destination, tag);
                      const WorkPtr sent = backend_->send(x, destination, tag);
                      announced->wait();
                      sent->wait();
                    });
}

CheckedBackend::WorkPtr CheckedBackend::recv(Tensors& tensors, int source, int tag) {
  return run_queued(receiving_[{source, tag}], tensors,
                    [this, x = tensors.at(0), source, tag] { receive_checked(x, source, tag); });
}

void CheckedBackend::receive_checked(const at::Tensor& x, int source, int tag) {
  Tensors bytes = {at::empty({kHeaderBytes}, at::kByte)};
  backend_->recv(bytes, source, tag)->wait();
  MessageHeader header;
  std::memcpy(&header, bytes[0].const_data_ptr(), sizeof(header));
  header.text.back() = '\0';
  const std::string own = tensor_text(x);
  const bool fits = own == header.text.data();
  // A message that does not fit is taken all the same, so that the next one can be.
  const auto dtype = static_cast<at::ScalarType>(header.dtype);
  Tensors message = {fits ? x : at::empty({header.numel}, dtype)};
  backend_->recv(message, source, tag)->wait();
  const auto& ranks = checker_->monitor().world_ranks();
  core::check<core::CommError>(fits, "dist.Group: group ", checker_->monitor().name(), ": rank ",
                               ranks[static_cast<size_t>(rank_)], " receives ", own, " of rank ",
                               ranks[static_cast<size_t>(source)], ", which sent ",
                               header.text.data(), "; give both the same shape and type");
}

CheckedBackend::WorkPtr CheckedBackend::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  core::fail<core::ConfigError>(
      "dist.Group: group ", checker_->monitor().name(),
      ": expected a message of one rank, got recvAnysource, which WEFT_CHECK_COLLECTIVES cannot "
      "compare; name the source or unset it");
}

}  // namespace weft::dist
