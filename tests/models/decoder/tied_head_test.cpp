// Models that are tied and whose files hold the head all the same.
#include "weft/models/decoder/tied_head.h"

#include <c10/core/InferenceMode.h>

#include <map>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using test::family_path;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

constexpr char kTied[] = "llama_bias";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

// What the head is in the file that is made.
struct Head {
  std::string bytes;
  io::Dtype dtype = io::Dtype::kBF16;
  std::vector<int64_t> shape;
};

std::string bytes_in_file(const io::TensorFile& file, const io::TensorMeta& tensor) {
  std::string bytes(tensor.num_bytes, '\0');
  file.read_at(tensor.file, tensor.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Head copied() {
  const auto file = io::TensorFile::open(family_path(kTied));
  const io::TensorMeta& embedding = file->require(kEmbedding);
  return {bytes_in_file(*file, embedding), embedding.dtype, embedding.shape};
}

// The tied model with a head.
std::shared_ptr<const io::TensorFile> with_head(const TempDir& dir, const Head& head) {
  const auto file = io::TensorFile::open(family_path(kTied));
  std::map<std::string, std::string> bytes;
  std::vector<io::TensorToWrite> tensors;
  for (const io::TensorMeta& tensor : file->tensors()) {
    const std::string& own = bytes[tensor.name] = bytes_in_file(*file, tensor);
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, std::as_bytes(std::span(own))});
  }
  tensors.push_back(
      {"lm_head.weight", head.dtype, head.shape, std::as_bytes(std::span(head.bytes))});
  io::write_safetensors(dir.at("model.safetensors"), tensors, {});
  std::filesystem::copy(family_path(kTied, "config.json"), dir.at("config.json"),
                        std::filesystem::copy_options::overwrite_existing);
  return io::TensorFile::open(dir.path());
}

TEST(TiedHead, ThatIsTheEmbeddingsCopyIsNotLoaded) {
  test::on_ranks(
      [](const Group& group) {
        const TempDir dir;
        const auto file = with_head(dir, copied());
        const auto expected = test::read_reference(family_path(kTied, "ref.safetensors"));
        const LoadedModel loaded = load_model(*file, group);
        const c10::InferenceMode inference;
        const at::Tensor logits_TV =
            loaded.model->logits(loaded.model->forward(expected.ids_BT, nullptr)).squeeze(0);
        EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4);
        const LoadPlan plan = make_plan(*file, group.size());
        const LoadPlan without = make_plan(*io::TensorFile::open(family_path(kTied)), group.size());
        EXPECT_EQ(plan.params().planned_bytes(group.rank()),
                  without.params().planned_bytes(group.rank()));
        EXPECT_EQ(loaded.stats.planned_bytes, plan.params().planned_bytes(group.rank()));
      },
      {1, 2, 3});
}

TEST(TiedHead, ThatDiffersIsRefusedOnAllRanks) {
  const std::string expected =
      ": tensor 'lm_head.weight' is not the embedding's, to which config.json "
      "ties the head; set tie_word_embeddings to false, or take the tensor out";
  Head last_byte = copied();
  last_byte.bytes.back() ^= 1;
  Head other_shape = copied();
  std::swap(other_shape.shape[0], other_shape.shape[1]);
  Head other_type = copied();
  other_type.dtype = io::Dtype::kF16;
  for (const Head& head : {last_byte, other_shape, other_type}) {
    test::on_ranks(
        [&](const Group& group) {
          const TempDir dir;
          const auto file = with_head(dir, head);
          const std::string error = error_text([&] { load_model(*file, group); });
          // The file is that of the rank which has seen it first.
          EXPECT_EQ(error.rfind("ConfigError: /", 0), 0U) << error;
          EXPECT_TRUE(error.ends_with(expected)) << error;
        },
        {1, 2});
  }
}

TEST(TiedHead, IsLoadedIfTheConfigurationDoesNotTieIt) {
  const TempDir dir;
  Head head = copied();
  std::fill(head.bytes.begin(), head.bytes.end(), '\0');
  const auto file = with_head(dir, head);
  dir.write("config.json", replaced(dir.read("config.json"), "\"tie_word_embeddings\": true",
                                    "\"tie_word_embeddings\": false"));
  const LoadedModel loaded = load_model(*file, Group());
  const c10::InferenceMode inference;
  const at::Tensor logits =
      loaded.model->logits(loaded.model->forward(at::zeros({1, 3}, at::kLong), nullptr));
  EXPECT_EQ(logits.abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace weft::models
