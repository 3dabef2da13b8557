#include "weft/models/config/mixers/config_latent.h"

#include "weft/core/error.h"
#include "weft/models/config/mixers/latent_keys.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;

constexpr int64_t kMaxDim = int64_t{1} << 30;

int64_t checked_dim(const JsonKeys& keys, const char* key, int64_t fallback) {
  const int64_t dim = keys.integer_or(key, fallback);
  check<FormatError>(dim >= 1 && dim <= kMaxDim, keys.where(), ": ", key, " is ", dim,
                     ", expected 1 to ", kMaxDim);
  return dim;
}

}  // namespace

void read_latent(const JsonKeys& keys, const FamilyLatent& family, ModelConfig& config) {
  if (!family.is_used()) return;
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    check<ConfigError>(!keys.flag_or(key, false), keys.where(), ": ", key,
                       " is true, which is not supported with latent attention, expected false");
  }
  LatentConfig& latent = config.latent;
  latent.kv_rank = checked_dim(keys, kKvRankFolderKey, family.kv_rank);
  const bool has_own_latent = !keys.is_null(kQueryRankFolderKey);
  latent.query_rank =
      has_own_latent ? checked_dim(keys, kQueryRankFolderKey, family.query_rank) : 0;
  latent.value_dim = checked_dim(keys, kValueDimFolderKey, family.value_dim);
  config.rope_dims = checked_dim(keys, kRopeDimFolderKey, family.rope_dim);
  config.head_dim = checked_dim(keys, kPlainDimFolderKey, family.plain_dim) + config.rope_dims;
  if (family.has_interleave_key) config.turns_neighbours = keys.flag_or(kInterleaveFolderKey, true);
}

void read_latent(const GgufKeys& keys, const std::string& architecture, ModelConfig& config) {
  const auto full = [&](const char* key) { return architecture + "." + key; };
  const auto dim = [&](const char* own, const char* usual) {
    return keys.integer(full(keys.has(full(own)) ? own : usual));
  };
  config.latent.kv_rank = keys.integer(full(kKvRankGgufKey));
  check<FormatError>(config.latent.kv_rank >= 1, keys.path(), ": key '", full(kKvRankGgufKey),
                     "' is ", config.latent.kv_rank, ", expected at least 1");
  config.latent.query_rank = keys.integer_or(full(kQueryRankGgufKey), 0);
  config.latent.value_dim = dim(kOwnValueDimGgufKey, kValueDimGgufKey);
  config.head_dim = dim(kOwnHeadDimGgufKey, kHeadDimGgufKey);
  config.num_kv_heads = config.num_heads;
}

}  // namespace weft::models
