// Folders of models with convolutions as mlx-lm converts them: taps in another order, norms with 1
// added, experts stacked, longer names. The form follows what its `sanitize` does.
#include "weft/models/decoder/weights/mlx_taps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/rules_of.h"
#include "tests/models/up_and_down.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/files/file.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/io/shard_folder.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/export.h"
#include "weft/models/convert/export_gguf.h"
#include "weft/models/convert/export_loaded.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/quant/affine.h"

namespace weft::models {
namespace {

using dist::Group;
using nlohmann::json;
using test::family_path;
using test::largest_difference;
using testing::error_text;
using testing::replaced;
using testing::TempDir;
using MlxNumbers = std::map<std::string, at::Tensor>;

MlxNumbers numbers_in(const std::string& folder) {
  const auto file = io::TensorFile::open(folder);
  MlxNumbers numbers;
  for (const io::TensorMeta& tensor : file->tensors())
    numbers[tensor.name] = io::load_tensor(*file, tensor.name, at::kFloat);
  return numbers;
}

void write_numbers(const TempDir& dir, const MlxNumbers& numbers, const json& config,
                   const std::string& format = "mlx") {
  std::vector<std::string> bytes;
  std::vector<io::TensorToWrite> list;
  bytes.reserve(numbers.size());
  for (const auto& [name, tensor] : numbers) {
    bytes.push_back(test::bytes_of_tensor(tensor));
    const io::Dtype type = tensor.scalar_type() == at::kFloat      ? io::Dtype::kF32
                           : tensor.scalar_type() == at::kBFloat16 ? io::Dtype::kBF16
                                                                   : io::Dtype::kU32;
    list.push_back({name, type, tensor.sizes().vec(), std::as_bytes(std::span(bytes.back()))});
  }
  io::write_safetensors(dir.at("model.safetensors"), list, {{"format", format}});
  dir.write("config.json", config.dump());
}

json config_in(const std::string& folder) {
  return json::parse(core::read_text_file(folder + "/config.json", 1 << 20));
}

bool has_taps(const std::string& name) {
  return name.ends_with(".conv1d.weight") || name.ends_with(".conv.conv.weight");
}

bool is_raised_norm(const std::string& name) {
  constexpr const char* kNorms[] = {".input_layernorm.weight", ".post_attention_layernorm.weight",
                                    "model.norm.weight", ".q_norm.weight", ".k_norm.weight"};
  return std::ranges::any_of(kNorms, [&](const char* norm) { return name.ends_with(norm); });
}

// "model.layers.0.mlp.switch_mlp.up_proj.weight" of one expert's or of all experts' name.
std::string stacked_name(const std::string& name, const std::string& part) {
  return name.substr(0, name.find(".experts.")) + ".switch_mlp." + part + ".weight";
}

void add_experts(const std::string& name, const at::Tensor& tensor, MlxNumbers& mlx) {
  if (name.ends_with(".experts.gate_up_proj")) {
    const auto halves = tensor.chunk(2, 1);
    mlx[stacked_name(name, "gate_proj")] = halves[0];
    mlx[stacked_name(name, "up_proj")] = halves[1];
  } else if (name.ends_with(".experts.down_proj")) {
    mlx[stacked_name(name, "down_proj")] = tensor;
  } else {
    const std::string base = name.substr(0, name.rfind('.'));
    at::Tensor& stack = mlx[stacked_name(name, base.substr(base.rfind('.') + 1))];
    const at::Tensor own = tensor.unsqueeze(0);
    stack = stack.defined() ? at::cat({stack, own}) : own;
  }
}

// MlxNumbers in float32, in which adding 1 loses little.
MlxNumbers in_mlx_form(const MlxNumbers& numbers) {
  MlxNumbers mlx;
  for (const auto& [name, tensor] : numbers) {
    if (name.find(".experts.") != std::string::npos) {
      add_experts(name, tensor, mlx);
    } else {
      mlx[name] = has_taps(name)         ? tensor.transpose(1, 2)
                  : is_raised_norm(name) ? tensor + 1
                                         : tensor;
    }
  }
  return mlx;
}

// A model of texts within one of texts and pictures, as mlx-lm names all of Qwen3.5's.
MlxNumbers within_pictures(const MlxNumbers& numbers) {
  MlxNumbers longer;
  for (const auto& [name, tensor] : numbers) longer["language_model." + name] = tensor;
  return longer;
}

json config_around(const json& text) {
  const std::string type = text.at("model_type");
  return {{"model_type", type.substr(0, type.rfind("_text"))}, {"text_config", text}};
}

// Of a family's golden checkpoint.
void write_mlx_folder(const TempDir& dir, const std::string& family) {
  const MlxNumbers mlx = in_mlx_form(numbers_in(family_path(family)));
  const json config = config_in(family_path(family));
  const bool is_within = family.starts_with("qwen3_5");
  write_numbers(dir, is_within ? within_pictures(mlx) : mlx,
                is_within ? config_around(config) : config);
}

TEST(MlxTaps, GiveTheLogitsOfThePublishedImplementation) {
  test::on_ranks([](const Group& group) {
    for (const char* family : {"qwen3_next", "qwen3_5", "qwen3_5_moe"}) {
      const TempDir dir;
      write_mlx_folder(dir, family);
      const auto expected = test::read_reference(family_path(family, "ref.safetensors"));
      const auto model = load_model(*io::TensorFile::open(dir.path()), group).model;
      EXPECT_LE(largest_difference(test::logits_of(*model, expected.ids_BT), expected.logits_TV),
                1e-4)
          << family;
    }
  });
}

// Norms are not raised where the family adds nothing to them.
TEST(MlxTaps, OfLfm2LeaveNormsAsTheyAre) {
  const TempDir dir;
  MlxNumbers numbers = numbers_in(family_path("lfm2"));
  for (auto& [name, tensor] : numbers) {
    if (has_taps(name)) tensor = tensor.transpose(1, 2);
  }
  write_numbers(dir, numbers, config_in(family_path("lfm2")));
  const auto expected = test::read_reference(family_path("lfm2", "ref.safetensors"));
  const auto model = load_model(*io::TensorFile::open(dir.path()), Group()).model;
  EXPECT_LE(largest_difference(test::logits_of(*model, expected.ids_BT), expected.logits_TV), 1e-4);
}

// bfloat16's rounding of norms with 1 added, and what is left without it.
at::Tensor rounded_norm(const at::Tensor& norm) {
  return (norm + 1).to(at::kBFloat16).to(at::kFloat) - 1;
}

TEST(MlxTaps, InBfloat16GiveTheBitsOfTheSameNorms) {
  MlxNumbers numbers = numbers_in(family_path("qwen3_next"));
  for (auto& [name, tensor] : numbers) {
    if (is_raised_norm(name)) tensor = rounded_norm(tensor);
  }
  const TempDir usual, mlx;
  const auto in_half = [](MlxNumbers all) {
    for (auto& [name, tensor] : all) tensor = tensor.to(at::kBFloat16);
    return all;
  };
  const json config = config_in(family_path("qwen3_next"));
  write_numbers(usual, in_half(numbers), config, "pt");
  write_numbers(mlx, in_half(in_mlx_form(numbers)), config);
  const auto ids_BT = test::read_reference(family_path("qwen3_next", "ref.safetensors")).ids_BT;
  LoadOptions options;
  options.dtype = at::kBFloat16;
  const auto logits = [&](const TempDir& dir) {
    return test::logits_of(*load_model(*io::TensorFile::open(dir.path()), Group(), options).model,
                           ids_BT);
  };
  EXPECT_TRUE(at::equal(logits(mlx), logits(usual)));
}

// As mlx-lm quantizes these families: routers in more bits.
bool is_mlx_router(const std::string& name) {
  return name.ends_with(".mlp.gate.weight") || name.ends_with(".shared_expert_gate.weight");
}

bool is_quantized(const std::string& name, const at::Tensor& tensor) {
  return tensor.dim() > 1 && !has_taps(name);
}

quant::AffineTensor quantized_rows(const std::string& name, const at::Tensor& tensor) {
  const bool is_router = is_mlx_router(name);
  return quant::quantize_affine(tensor.flatten(0, -2), is_router ? 8 : 4, is_router ? 64 : 32,
                                at::kBFloat16);
}

// The numbers that quantizing leaves.
MlxNumbers rounded(MlxNumbers numbers) {
  for (auto& [name, tensor] : numbers) {
    if (is_quantized(name, tensor))
      tensor = quant::dequantize(quantized_rows(name, tensor), at::kFloat).view_as(tensor);
  }
  return numbers;
}

MlxNumbers quantized(const MlxNumbers& numbers) {
  MlxNumbers parts;
  for (const auto& [name, tensor] : numbers) {
    if (!is_quantized(name, tensor)) {
      parts[name] = tensor;
      continue;
    }
    const quant::AffineTensor rows = quantized_rows(name, tensor);
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.back() = -1;
    const std::string base = name.substr(0, name.rfind('.'));
    parts[name] = rows.packed.view(at::kInt).reshape(shape);
    parts[base + ".scales"] = rows.scales.reshape(shape);
    parts[base + ".biases"] = rows.offsets.reshape(shape);
  }
  return parts;
}

json quantization_of(const MlxNumbers& numbers) {
  json said = {{"group_size", 32}, {"bits", 4}, {"mode", "affine"}};
  for (const auto& [name, tensor] : numbers) {
    if (is_mlx_router(name))
      said[name.substr(0, name.rfind('.'))] = {{"group_size", 64}, {"bits", 8}};
  }
  return said;
}

// A random model of a family whose rows are whole quant groups, and its config.json.
MlxNumbers wide_numbers(const std::string& family, json& config) {
  const TempDir dir;
  config = config_in(family_path(family));
  config.update(json{{"hidden_size", 64},
                     {"head_dim", 32},
                     {"moe_intermediate_size", 32},
                     {"shared_expert_intermediate_size", 32},
                     {"linear_value_head_dim", 32}});
  InitOptions options;
  options.seed = 4;
  options.std = 0.05;
  const auto model = make_model(config_from_json(config, dir.path()), Group(), options);
  export_loaded(*model, io::Dtype::kF32, uint64_t{1} << 30, dir.path());
  MlxNumbers numbers = numbers_in(dir.path());
  at::manual_seed(4);
  for (auto& [name, tensor] : numbers) {
    if (is_raised_norm(name)) tensor = 0.2 * at::randn_like(tensor);
  }
  return numbers;
}

TEST(MlxTaps, OfQuantizedModelsGiveTheLogitsOfTheirNumbers) {
  for (const std::string family : {"qwen3_next", "qwen3_5_moe"}) {
    json config;
    const MlxNumbers numbers = wide_numbers(family, config);
    const bool is_within = family != "qwen3_next";
    const TempDir usual, mlx;
    write_numbers(usual, rounded(numbers), config, "pt");
    MlxNumbers parts = quantized(in_mlx_form(numbers));
    if (is_within) {
      parts = within_pictures(parts);
      config = config_around(config);
    }
    config["quantization"] = quantization_of(parts);
    write_numbers(mlx, parts, config);
    const at::Tensor ids_BT = at::tensor({1, 7, 60, 3, 3, 21}, at::kLong).unsqueeze(0);
    const auto logits = [&](const TempDir& dir, const Group& group) {
      return test::logits_of(*load_model(*io::TensorFile::open(dir.path()), group).model, ids_BT);
    };
    test::on_ranks([&](const Group& group) {
      test::expect_close(logits(mlx, group), logits(usual, Group()), family, 1e-5);
    });
  }
}

TEST(MlxTaps, GoThroughCutsAndConversions) {
  const TempDir mlx, again;
  write_mlx_folder(mlx, "qwen3_next");
  testing::add_byte_tokenizer(mlx.path());
  const auto file = io::TensorFile::open(mlx.path());
  const auto expected = test::read_reference(family_path("qwen3_next", "ref.safetensors"));
  for (const int64_t n : {1, 2}) {
    const TempDir cut;
    io::ShardFolderOptions options;
    options.num_ranks = n;
    io::write_shards(*file, shard_info(*file, test::rules_of(*file)), {}, options, cut.path(),
                     [](uint64_t, uint64_t) {});
    std::filesystem::copy(mlx.at("config.json"), cut.path());
    const auto model = load_model(*io::TensorFile::open(cut.path()), Group()).model;
    EXPECT_LE(largest_difference(test::logits_of(*model, expected.ids_BT), expected.logits_TV),
              1e-4);
  }
  export_weights(*file, {}, Group(), again.path(), [](uint64_t, uint64_t) {});
  const MlxNumbers numbers = numbers_in(again.path());
  for (const auto& [name, tensor] : numbers_in(family_path("qwen3_next"))) {
    ASSERT_EQ(numbers.at(name).sizes(), tensor.sizes()) << name;
    EXPECT_LE(largest_difference(numbers.at(name), tensor), 1e-7) << name;
  }
  export_gguf(*file, std::nullopt, again.at("model.gguf"), [](uint64_t, uint64_t) {});
  const auto gguf = io::TensorFile::open(again.at("model.gguf"));
  const auto published = io::TensorFile::open(family_path("qwen3_next", "model.gguf"));
  for (const io::TensorMeta& tensor : published->tensors()) {
    EXPECT_EQ(gguf->require(tensor.name).shape, tensor.shape) << tensor.name;
  }
}

std::string mlx_error(const MlxNumbers& numbers, const json& config, const std::string& format) {
  const TempDir dir;
  write_numbers(dir, numbers, config, format);
  return replaced(error_text([&] { make_plan(*io::TensorFile::open(dir.path()), 1); }), dir.path(),
                  "DIR");
}

TEST(MlxTaps, ThatLeaveNormsUnknownAreRefused) {
  const json config = config_in(family_path("qwen3_next"));
  const MlxNumbers usual = numbers_in(family_path("qwen3_next")), mlx = in_mlx_form(usual);
  const std::string taps = "model.layers.2.linear_attn.conv1d.weight";
  MlxNumbers mixed = mlx;
  mixed[taps] = usual.at(taps);
  EXPECT_EQ(mlx_error(mixed, config, "mlx"),
            "FormatError: DIR: tensor 'model.layers.2.linear_attn.conv1d.weight': shape "
            "[100, 1, 3], but 'model.layers.0.linear_attn.conv1d.weight' has [100, 3, 1], expected "
            "all as MLX or all as transformers has them; convert the original model anew");
  MlxNumbers half = usual;
  for (auto& [name, tensor] : half) {
    if (has_taps(name)) tensor = tensor.transpose(1, 2);
  }
  EXPECT_EQ(mlx_error(half, config, "pt"),
            "FormatError: DIR: tensor 'model.layers.0.linear_attn.conv1d.weight': shape "
            "[100, 3, 1] as MLX has it beside 'model.layers.0.mlp.experts.0.up_proj.weight' as "
            "transformers has it, expected both as one of them: norms differ by 1; convert the "
            "original model anew");
  json one_tap = config;
  one_tap["linear_conv_kernel_dim"] = 1;
  MlxNumbers single = mlx;
  for (auto& [name, tensor] : single) {
    if (has_taps(name)) tensor = tensor.narrow(1, 0, 1);
  }
  EXPECT_EQ(mlx_error(single, one_tap, "mlx"),
            "FormatError: DIR: tensor 'model.layers.0.linear_attn.conv1d.weight': shape "
            "[100, 1, 1] in a file of format 'mlx', expected at least 2 taps, whose order tells "
            "whether norms have 1 added; take the original model");
}

}  // namespace
}  // namespace weft::models
