// The README's table of families, made of what runs here: nothing is claimed that was not seen.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/models/enlarged_family.h"
#include "tests/models/family_files.h"
#include "tests/models/gradient_goldens.h"
#include "tests/models/model_logits.h"
#include "tests/models/passes/pieces.h"
#include "weft/core/files/file.h"
#include "weft/models/load/load.h"
#include "weft/models/reads_each.h"

namespace weft::models {
namespace {

using test::family_path;

struct Row {
  const char* title;
  /// A golden checkpoint.
  const char* name;
};

const std::vector<Row> kRows = {{"Llama 1 to 3", "llama"},
                                {"Mistral", "mistral"},
                                {"Ministral 3", "ministral3"},
                                {"Mixtral", "mixtral"},
                                {"Qwen2", "qwen2"},
                                {"Qwen2-MoE", "qwen2_moe"},
                                {"Qwen3", "qwen3"},
                                {"Qwen3-MoE", "qwen3_moe"},
                                {"Qwen3-Next", "qwen3_next"},
                                {"Qwen3.5 and 3.6", "qwen3_5"},
                                {"the same with experts", "qwen3_5_moe"},
                                {"SmolLM3", "smollm3"},
                                {"Granite", "granite"},
                                {"Phi-3", "phi3"},
                                {"OLMo 2", "olmo2"},
                                {"Gemma 2", "gemma2"},
                                {"Gemma 3", "gemma3"},
                                {"Gemma 4", "gemma4"},
                                {"Gemma 4 with experts", "gemma4_moe"},
                                {"Gemma 4, small", "gemma4_small"},
                                {"gpt-oss", "gpt_oss"},
                                {"GLM-4", "glm4"},
                                {"GLM-4.5", "glm4_moe"},
                                {"GLM-4.7-Flash", "glm4_moe_lite"},
                                {"DeepSeek V2", "deepseek_v2"},
                                {"DeepSeek V3", "deepseek_v3"},
                                {"LFM2", "lfm2"}};

bool has_published_logits(const std::string& name, const std::string& form) {
  if (!std::filesystem::exists(family_path(name, form))) return false;
  const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
  const auto model = load_model(*io::TensorFile::open(family_path(name, form)), {}).model;
  const at::Tensor logits_TV = test::logits_of(*model, expected.ids_BT);
  return test::largest_difference(logits_TV, expected.logits_TV) <= 1e-4;
}

// Whether a model of the family in 4 bits runs through the pass for weights in panels, and that
// gives what the modules give.
bool has_fast_pass(const std::string& name) {
  const c10::InferenceMode inference;
  const auto model = test::enlarged_family(name, {}, 16);
  // The modules don't.
  if (!dynamic_cast<ReadsEach&>(*model).reads_each(model->make_cache(1, 1))) return false;
  const at::Tensor ids_BT = at::arange(2 * 9).mul(31).remainder(61).view({2, 9});
  const at::Tensor whole_BTD = model->forward(ids_BT, nullptr);
  model->set_cache_dtype(at::kFloat);
  const at::Tensor got_BTD = test::in_pieces(*model, ids_BT, {5, 1, 1, 2});
  const double error =
      (got_BTD - whole_BTD).norm().item<double>() / whole_BTD.norm().item<double>();
  // Activations are rounded to codes of 16 bits; where scores are close, that picks another expert.
  return error <= 0.02;
}

bool has_published_gradients(const std::string& name) {
  if (!test::gradient_goldens().contains(name)) return false;
  return test::wrong_gradients(*test::differentiated(name, {}).model, name).empty();
}

std::string line_of(const Row& row) {
  const auto mark = [](bool is_so) { return is_so ? " yes |" : " |"; };
  const std::string name = row.name;
  return "| " + std::string(row.title) + " |" + mark(has_published_logits(name, "")) +
         mark(has_published_logits(name, "model.gguf")) + mark(has_fast_pass(name)) +
         mark(has_published_gradients(name)) + "\n";
}

TEST(Readme, ClaimsOfFamiliesWhatRunsHere) {
  std::string table =
      "| family | Hugging Face | GGUF | fast pass | training |\n|---|---|---|---|---|\n";
  for (const Row& row : kRows) table += line_of(row);
  const std::string readme =
      core::read_text_file(std::string(WEFT_SOURCE_DIR) + "/README.md", 1 << 20);
  EXPECT_NE(readme.find(table), std::string::npos) << "README.md: expected the table\n" << table;
}

}  // namespace
}  // namespace weft::models
