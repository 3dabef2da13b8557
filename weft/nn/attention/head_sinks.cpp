#include "weft/nn/attention/head_sinks.h"

#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

HeadSinksImpl::HeadSinksImpl(at::Tensor weight_in, shard::Layout layout)
    : layout_(std::move(layout)) {
  core::check<core::ShapeError>(weight_in.dim() == 1, "nn.HeadSinks: weight ",
                                core::list_text(weight_in.sizes()), ", expected [heads]");
  weight = register_parameter("weight", std::move(weight_in), false);
}

void HeadSinksImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

}  // namespace weft::nn
