#include "weft/models/config.h"

#include <cmath>

#include "weft/core/error.h"
#include "weft/models/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;

constexpr int64_t kMaxLayers = 1'000;
constexpr int64_t kMaxSize = int64_t{1} << 31;

void check_size(int64_t value, int64_t limit, const char* name, const std::string& where) {
  check<FormatError>(value >= 1 && value <= limit, where, ": config: ", name, " is ", value,
                     ", expected 1 to ", limit);
}

}  // namespace

void check_config(const ModelConfig& config, const std::string& where) {
  check_size(config.vocab_size, kMaxSize, "vocabulary size", where);
  check_size(config.width, kMaxSize, "width", where);
  check_size(config.num_layers, kMaxLayers, "number of layers", where);
  check_size(config.num_heads, kMaxSize, "number of heads", where);
  check_size(config.num_kv_heads, config.num_heads, "number of kv heads", where);
  check_size(config.head_dim, kMaxSize, "head dim", where);
  check_size(config.ffn_width, kMaxSize, "ffn width", where);
  check_size(config.max_positions, kMaxSize, "number of positions", where);
  check<FormatError>(config.num_heads % config.num_kv_heads == 0, where,
                     ": config: ", config.num_heads, " heads over ", config.num_kv_heads,
                     " kv heads, expected a multiple");
  check<FormatError>(config.head_dim % 2 == 0, where, ": config: head dim ", config.head_dim,
                     ", expected an even number for rope");
  check<FormatError>(std::isfinite(config.norm_eps) && config.norm_eps > 0, where,
                     ": config: norm epsilon ", config.norm_eps, ", expected a positive number");
  check<FormatError>(std::isfinite(config.rope_base) && config.rope_base > 0, where,
                     ": config: rope base ", config.rope_base, ", expected a positive number");
}

ModelConfig read_config(const io::TensorFile& file) {
  ModelConfig config = file.is_gguf() ? config_from_gguf(file) : config_from_folder(file);
  check_config(config, file.path());
  return config;
}

}  // namespace weft::models
