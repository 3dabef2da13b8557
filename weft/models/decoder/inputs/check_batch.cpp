#include "weft/models/decoder/inputs/check_batch.h"

#include "weft/core/error.h"

namespace weft::models {

void check_batch(const TokenBatch& batch) {
  const auto check = [&](const at::Tensor& extra, const char* name) {
    core::check<core::ShapeError>(
        !extra.defined() ||
            (extra.scalar_type() == at::kLong && extra.sizes() == batch.ids_BT.sizes()),
        "models.CausalLM: ", name, " ",
        extra.defined()
            ? core::join(c10::toString(extra.scalar_type()), " ", core::list_text(extra.sizes()))
            : "",
        ", expected int64 ", core::list_text(batch.ids_BT.sizes()), " as the tokens");
  };
  check(batch.documents_BT, "documents");
  check(batch.positions_BT, "positions");
}

}  // namespace weft::models
