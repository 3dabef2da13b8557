#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <optional>

#include "weft/cli/model/adapter.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/io/formats/write_safetensors.h"

namespace weft::cli {
namespace {

// From the headers alone, so that a bad request costs no loading.
void check_tokens(const std::vector<int64_t>& tokens, const models::ModelConfig& config) {
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  core::check<core::ConfigError>(num_tokens <= config.max_positions, "--tokens: ", num_tokens,
                                 " tokens, expected at most ", config.max_positions);
  for (const int64_t token : tokens) {
    core::check<core::ConfigError>(token < config.vocab_size, "--tokens: ", token,
                                   ", expected 0 to ", config.vocab_size - 1);
  }
}

int logits_on_ranks(const ModelOptions& model_options, const dist::World& world,
                    const LogitsOptions& options) {
  const c10::InferenceMode inference;
  const Session session = open_session(model_options, world);
  models::CausalLM& model = *session.loaded.model;
  const at::Tensor ids_BT = at::tensor(options.tokens, at::kLong).unsqueeze(0);
  // What is computed exactly is computed as texts are generated, with a cache.
  std::optional<nn::KvCache> cache;
  if (model_options.is_exact) cache = model.make_cache(1, ids_BT.size(1));
  const at::Tensor x_BTD = model.forward(ids_BT, cache ? &*cache : nullptr);
  const at::Tensor logits_TV = model.logits(x_BTD).squeeze(0).to(at::kFloat).contiguous();
  core::check<core::FormatError>(at::isfinite(logits_TV).all().item<bool>(), session.path,
                                 ": the model's logits, expected finite numbers, got NaN or "
                                 "infinity; its weights are damaged");
  if (!session.is_root()) return 0;
  const auto* bytes = static_cast<const std::byte*>(logits_TV.const_data_ptr());
  io::write_safetensors(
      options.out,
      {{"logits", io::Dtype::kF32, logits_TV.sizes().vec(), {bytes, logits_TV.nbytes()}}}, {});
  return 0;
}

}  // namespace

int run_logits(const LogitsOptions& options) {
  const std::string model = base_path(options.model);
  check_new_file(options.out, options.force, model_inputs(options.model, model));
  check_tokens(options.tokens, models::read_config(*io::TensorFile::open(model)));
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return logits_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
