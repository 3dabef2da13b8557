#include "weft/models/load/load.h"

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/memory/kept_memory.h"
#include "weft/cuda/device.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/decoder/decoder_rules.h"
#include "weft/models/decoder/expert_split.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/load/fingerprint.h"
#include "weft/models/load/plain_latents.h"
#include "weft/models/load/presharded.h"
#include "weft/models/registry.h"
#include "weft/nn/kernels/select.h"
#ifdef WEFT_HAS_CUDA
#include "weft/nn/linear/cuda_linear.h"
#endif
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/half_linear.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/torch_dtype.h"

namespace weft::models {
namespace {

// Of what is computed with: LoadOptions::dtype, or float32 beside matrices that stay as stored.
at::ScalarType computing_dtype(at::ScalarType dtype) {
  return dtype == at::ScalarType::Undefined ? at::kFloat : dtype;
}

// Where matrices can be, and what they can do there.
void check_place(const LoadOptions& options) {
  if (options.on_cuda) {
    cuda::require_built("models.load_model");
    core::check<core::ConfigError>(!options.is_trainable,
                                   "models.load_model: a model to train on cuda, expected one for "
                                   "inference; load it on the CPU");
  }
  const bool is_in_panels =
      options.panel_activation_bits > 0 && !options.on_cuda && !options.is_trainable;
  core::check<core::ConfigError>(
      !options.is_exact || is_in_panels,
      "models.load_model: the same bits on any number of ranks, expected a model for inference "
      "whose matrices are in panels on the CPU; set panel_activation_bits, or ask for the usual "
      "sums");
}

}  // namespace

WeightReader::WeightReader(const io::TensorFile& file, const LoadPlan& plan, int64_t rank,
                           Progress progress, at::ScalarType dtype, MatrixPlace place)
    : WeightSource(plan, rank),
      file_(file),
      progress_(std::move(progress)),
      dtype_(dtype),
      place_(place),
      planned_bytes_(plan.params().planned_bytes(rank)) {}

std::shared_ptr<nn::LinearLike> WeightReader::linear(const std::string& base,
                                                     bool with_bias) const {
  const std::string name = base + ".weight";
  const PlannedWeight& weight = plan().require(name);
  if (weight.rule.is_vector()) {
    return std::make_shared<nn::DenseLinearImpl>(vector(name).unsqueeze(0));
  }
  const io::MatrixSlice wanted = plan().stored_slice(weight, rank());
  io::MatrixSource source{weight.format, {}, wanted};
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    source.parts.push_back(&plan().recipe(weight, i, rank()));
  }
  at::Tensor bias = with_bias ? vector_or_undefined(base + ".bias") : at::Tensor();
  io::ReadStats own;
  if (place_.panel_activation_bits != 0 && !place_.on_cuda) {
    if (auto panels = io::load_panels(file_, source, place_.panel_activation_bits, &own)) {
      report(own);
      panels->is_exact = place_.is_exact;
      return nn::in_panels(std::move(*panels), bias);
    }
  }
  io::LoadedMatrix loaded = io::load_matrix(file_, source, matrix_dtype(weight), &own);
  report(own);
  if (auto* dense = std::get_if<at::Tensor>(&loaded)) {
    return in_order(std::make_shared<nn::DenseLinearImpl>(std::move(*dense), std::move(bias)));
  }
  return in_order(std::make_shared<nn::QuantizedLinearImpl>(
      std::get<quant::QuantizedMatrix>(std::move(loaded)), std::move(bias)));
}

at::ScalarType plain_half(io::MatrixKind kind) {
  const bool is_floats = kind == io::MatrixKind::kScaledFloats || kind == io::MatrixKind::kCodebook;
  return is_floats ? at::kBFloat16 : at::kHalf;
}

at::ScalarType WeightReader::matrix_dtype(const PlannedWeight& weight) const {
  if (!place_.keeps_halves() && dtype_ != at::ScalarType::Undefined) return dtype_;
  // As transformers has them where speed matters, exact where the numbers do.
  if (io::makes_plain(weight.format.kind) && weight.format.kind != io::MatrixKind::kDense) {
    return place_.keeps_halves() ? plain_half(weight.format.kind) : at::kFloat;
  }
  const io::Dtype stored = plan().recipe(weight, 0, rank()).file_view().dtype();
  const bool is_half = stored == io::Dtype::kF16 || stored == io::Dtype::kBF16;
  return is_half ? quant::torch_dtype(stored).value() : computing_dtype(dtype_);
}

// The linear where it is wanted: on the GPU, in panels if it fits, or in the wanted type.
std::shared_ptr<nn::LinearLike> WeightReader::in_order(
    std::shared_ptr<nn::LinearLike> linear) const {
#ifdef WEFT_HAS_CUDA
  if (place_.on_cuda) return nn::on_cuda(*linear);
#endif
  if (place_.panel_activation_bits != 0) {
    if (auto panels = nn::in_panels(*linear, {place_.panel_activation_bits, place_.is_exact}))
      return panels;
  }
  const auto* dense = dynamic_cast<const nn::DenseLinearImpl*>(linear.get());
  const at::ScalarType wanted = computing_dtype(dtype_);
  if (dense == nullptr || dense->weight.scalar_type() == wanted) return linear;
  if (dtype_ == at::ScalarType::Undefined) {
    return std::make_shared<nn::HalfLinearImpl>(dense->weight.detach(), dense->bias);
  }
  return std::make_shared<nn::DenseLinearImpl>(dense->weight.to(wanted), dense->bias);
}

at::Tensor WeightReader::vector(const std::string& name) const {
  // Rope is always computed in float32.
  const at::ScalarType dtype = name == kRopeDivisors ? at::kFloat : computing_dtype(dtype_);
  const PlannedWeight& weight = plan().require(name);
  const bool differs = differs_in_file(weight.rule);
  io::ReadStats own;
  const at::Tensor vector =
      io::load_tensor(file_, plan().recipe(weight, 0, rank()), differs ? at::kFloat : dtype, &own);
  report(own);
  return differs ? from_stored(vector, weight.rule, file_.path()).to(dtype) : vector;
}

void WeightReader::report(const io::ReadStats& own) const {
  const std::lock_guard lock(mutex_);
  stats_.planned_bytes += own.planned_bytes;
  stats_.read_bytes += own.read_bytes;
  stats_.num_spans += own.num_spans;
  stats_.peak_host_bytes = std::max(stats_.peak_host_bytes, own.peak_host_bytes);
  if (progress_) progress_(stats_.planned_bytes, planned_bytes_);
}

LoadPlan make_plan(const io::TensorFile& given, int64_t num_ranks, const LoadOptions& options) {
  const auto plain = with_plain_latents(given, LatentBytes::kHeaders);
  const io::TensorFile& file = plain == nullptr ? given : *plain;
  const ModelConfig config = read_config(file);
  PlanOptions plan_options;
  plan_options.shard_info = options.shard_info;
  plan_options.functions = options.functions;
  plan_options.quantization = read_quantization_config(file);
  WeightRules rules = find_family(config.family).rules(config, file);
  if (options.expert_split == ExpertSplit::kExperts) split_by_experts(config, rules);
  std::optional<io::ShardInfo> pieces;
  if (options.shard_info == nullptr) pieces = presharded_info(file, rules, options.functions);
  if (pieces) plan_options.shard_info = &*pieces;
  if (options.is_exact && plan_options.shard_info == nullptr) cut_between_blocks(rules);
  const io::ShardInfo* cuts = plan_options.shard_info;
  set_head_split(cuts == nullptr ? options.head_split : head_split_of(*cuts), rules);
  return LoadPlan(file, rules, num_ranks, plan_options);
}

// Ranks with other kernels round otherwise, and would even choose other experts.
std::string exact_terms() {
  return core::join(", the same bits on any number of ranks by the kernels ",
                    quant::kernels::active_panel_kernel().name, " and ",
                    nn::kernels::active_kernel().name);
}

AgreedModel agree_on(const io::TensorFile& file, const dist::Group& group,
                     const LoadOptions& options) {
  check_place(options);
  const std::string weights = group.size() == 1 ? "" : ", fingerprint " + fingerprint(file);
  const std::string sums = options.is_exact ? exact_terms() : "";
  AgreedModel agreed(read_config(file), make_plan(file, group.size(), options), group,
                     {"model file", core::join(file.tensors().size(), " tensors", weights, sums)});
  check_copied_head(agreed.config(), file, group);
  return agreed;
}

LoadedModel load_model(const io::TensorFile& given, const dist::Group& group,
                       const LoadOptions& options) {
  const auto plain = with_plain_latents(given, LatentBytes::kRead);
  const io::TensorFile& file = plain == nullptr ? given : *plain;
  const AgreedModel agreed = agree_on(file, group, options);
  const WeightReader reader(file, agreed.plan(), group.rank(), options.progress, options.dtype,
                            {options.panel_activation_bits, options.on_cuda, options.is_exact});
  const core::KeptMemory kept;
  LoadedModel loaded;
  loaded.model = agreed.make(reader, options.layers, options.is_trainable);
  loaded.stats = reader.stats();
  return loaded;
}

}  // namespace weft::models
