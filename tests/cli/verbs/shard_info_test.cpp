// TVM's and MLC's files from the command line: what is written for every rank is what numpy gives
// (tools/make_shard_info_goldens.py), for 1, 2, 3, 4 and 8 ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "weft/cli/tensor_verbs.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

constexpr char kShardInfoData[] = WEFT_SOURCE_DIR "/tests/cli/data/shard_info/";

std::string data(const std::string& name) { return kShardInfoData + name; }

const json& cases() {
  static const json all = [] {
    std::ifstream in(data("cases.json"));
    return json::parse(in);
  }();
  return all;
}

void expect_quiet(const Strings& args) {
  const CommandResult result = weft(args);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
}

void expect_config_error(const Strings& args, const std::string& message) {
  const CommandResult result = weft(args);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "weft: ConfigError: " + message + "\n");
}

// A tensor of each file, compared in type, shape and bytes.
void expect_same(const io::TensorFile& a, const std::string& name, const io::TensorFile& b,
                 const std::string& other) {
  const io::TensorMeta &left = a.require(name), &right = b.require(other);
  EXPECT_EQ(left.dtype, right.dtype) << name;
  EXPECT_EQ(left.shape, right.shape) << name;
  EXPECT_EQ(testing::tensor_text(a, name), testing::tensor_text(b, other)) << name;
}

// The files of one case in a folder: a set of tensors with the heads in MLC's config.
class CaseFiles {
 public:
  explicit CaseFiles(const json& each) : tp_(each.at("tp").dump()) {
    fs::copy_file(data("tensors.safetensors"), dir_.at("tensors.safetensors"));
    dir_.write("mlc-chat-config.json", json({{"model_config", cases().at("heads")}}).dump());
    dir_.write("functions.json", cases().at("functions").dump());
    dir_.write("info.json", each.at("shard_info").dump());
  }
  std::string at(const std::string& name) const { return dir_.at(name); }
  Strings flags() const {
    return {"--tp", tp_, "--shard-info", at("info.json"), "--functions", at("functions.json")};
  }

 private:
  TempDir dir_;
  std::string tp_;
};

void expect_plan(const json& report, const io::TensorFile& expected, const json& each) {
  size_t num_cut = 0;
  for (const json& tensor : report.at("tensors")) {
    if (!tensor.at("is_cut")) continue;
    ++num_cut;
    for (size_t rank = 0; rank < each.at("tp").get<size_t>(); ++rank) {
      const io::TensorMeta& shard =
          expected.require(core::join(each.at("name").get<std::string>(), "/",
                                      tensor.at("name").get<std::string>(), "/", rank));
      EXPECT_EQ(tensor.at("ranks").at(rank).at("shape"), json(shard.shape)) << shard.name;
      EXPECT_EQ(tensor.at("ranks").at(rank).at("bytes"), json(shard.num_bytes)) << shard.name;
    }
  }
  EXPECT_EQ(num_cut, each.at("cut").size());
}

void expect_case(const json& each, const io::TensorFile& source, const io::TensorFile& expected) {
  const auto name = each.at("name").get<std::string>();
  SCOPED_TRACE(name);
  const CaseFiles files(each);
  const auto n = each.at("tp").get<size_t>();
  // In this process: the program takes longer to start than to cut.
  const Strings args = joined({files.at("tensors.safetensors"), files.at("out")}, files.flags());
  ASSERT_EQ(run_tensor_verb("shard", args), 0);
  const auto written = io::TensorFile::open(files.at("out"));
  const auto cut = each.at("cut").get<Strings>();
  for (const io::TensorMeta& tensor : source.tensors()) {
    if (std::find(cut.begin(), cut.end(), tensor.name) == cut.end()) {
      expect_same(*written, tensor.name, source, tensor.name);
      continue;
    }
    for (size_t rank = 0; rank < n; ++rank) {
      const std::string piece =
          n == 1 ? tensor.name : core::join(tensor.name, "_shard-", rank + 1, "-of-", n);
      expect_same(*written, piece, expected, core::join(name, "/", tensor.name, "/", rank));
    }
  }
  if (n != 4) return;
  const Strings inspect = {"inspect", files.at("tensors.safetensors"), "--json"};
  expect_plan(weft_json(joined(inspect, files.flags())), expected, each);
}

TEST(ShardInfoFiles, OfTvmAndMlcGiveWhatNumpyGives) {
  const auto source = io::TensorFile::open(data("tensors.safetensors"));
  const auto expected = io::TensorFile::open(data("expected.safetensors"));
  ASSERT_EQ(cases().at("cases").size(), 52U);
  for (const json& each : cases().at("cases")) expect_case(each, *source, *expected);
}

// Cut by TVM's rules in one step, so the pieces say themselves how they were cut.
TEST(ShardInfoFiles, PiecesAreCutAnewAndJoined) {
  const TempDir dir;
  const std::string info = dir.write("info.json", R"({"uneven": 1, "x_1": 0})");
  const std::string source = data("tensors.safetensors");
  expect_quiet({"shard", source, dir.at("three"), "--tp", "3", "--shard-info", info});
  expect_quiet({"shard", dir.at("three"), dir.at("two"), "--tp", "2"});
  const json report = weft_json({"inspect", dir.at("two"), "--tp", "4", "--json"});
  EXPECT_EQ(report.at("rank_bytes").size(), 4U);
  expect_quiet({"shard", dir.at("two"), dir.at("whole"), "--tp", "1"});
  const auto before = io::TensorFile::open(source), after = io::TensorFile::open(dir.at("whole"));
  ASSERT_EQ(after->tensors().size(), before->tensors().size());
  for (const io::TensorMeta& tensor : before->tensors()) {
    expect_same(*after, tensor.name, *before, tensor.name);
  }
}

// What a presharded cache of TVM's holds: pieces, and nothing that says how they were cut.
TEST(ShardInfoFiles, PiecesWithoutRulesGoToTheirRanks) {
  const TempDir dir;
  const std::string info = dir.write("info.json", R"({"uneven": 1})");
  expect_quiet(
      {"shard", data("tensors.safetensors"), dir.at("cut"), "--tp", "2", "--shard-info", info});
  const std::string none = dir.write("none.json", "{}");
  const json report =
      weft_json({"inspect", dir.at("cut"), "--tp", "2", "--json", "--shard-info", none});
  for (const json& tensor : report.at("tensors")) {
    const bool is_cut = tensor.at("name") == "uneven";
    EXPECT_EQ(tensor.at("is_cut"), json(is_cut)) << tensor;
    if (!is_cut) continue;
    EXPECT_EQ(tensor.at("ranks").at(0).at("shape"), json({11, 7}));
    EXPECT_EQ(tensor.at("ranks").at(1).at("shape"), json({11, 6}));
  }
}

TEST(ShardInfoFiles, TakeSeveralFilesAsOneSetOfTensors) {
  const TempDir dir;
  const std::string info = dir.write("info.json", R"({"uneven": 1})");
  const Strings tensors = {"--tensors", data("tensors.safetensors"), data("expected.safetensors")};
  const Strings rules = {"--shard-info", info, "--tp", "2"};
  const json report = weft_json(joined(joined({"inspect", "--json"}, tensors), rules));
  const size_t all = io::TensorFile::open(data("tensors.safetensors"))->tensors().size() +
                     io::TensorFile::open(data("expected.safetensors"))->tensors().size();
  EXPECT_EQ(report.at("tensors").size(), all);
  expect_quiet(joined(joined({"shard", dir.at("out")}, tensors), rules));
  EXPECT_EQ(io::TensorFile::open(dir.at("out"))->tensors().size(), all + 1);
  // A folder that was written before, without config.json, is replaced only when asked for.
  expect_config_error(joined(joined({"shard", dir.at("out")}, tensors), rules),
                      dir.at("out") + ": is there already; choose another path or give --force");
  expect_quiet(joined(joined({"shard", dir.at("out")}, tensors), joined(rules, {"--force"})));
}

TEST(ShardInfoFiles, RefuseWhatNothingSays) {
  const TempDir dir;
  const std::string source = dir.at("t.safetensors");
  fs::copy_file(data("tensors.safetensors"), source);
  expect_config_error({"shard", source, dir.at("out"), "--tp", "2"},
                      source +
                          ": no config.json says which model this is, so nothing says how to cut "
                          "it; give rules by --shard-info");
  expect_config_error({"shard", source, dir.at("out"), "--tp", "2", "--functions", "f.json"},
                      "--functions: without --shard-info, whose rules call them; give both");
  expect_config_error(
      {"inspect", source, "--tensors", source},
      "--tensors: beside MODEL '" + source + "', expected one of them; leave the other out");
  const std::string qkv =
      dir.write("qkv.json", R"({"w_qkv": [{"func_name": "_shard_qkv", "out_shape": [2, 60, 3],)"
                            R"( "out_dtype": "float16"}]})");
  expect_config_error(
      {"inspect", source, "--tp", "2", "--shard-info", qkv},
      qkv +
          ": parameter 'w_qkv': '_shard_qkv' cuts q, k and v, and nothing says how "
          "many heads there are; put config.json or mlc-chat-config.json beside the "
          "tensors, or bind the name in a file of functions: {\"_shard_qkv\": "
          "[\"weft.stack_qkv\", HEADS, KV_HEADS]}; --functions takes such a file");
  const std::string dims = dir.write("dims.json", R"({"uneven": 0})");
  const std::string other = dir.at("other");
  fs::create_directory(other);
  fs::copy_file(source, other + "/notes");
  expect_config_error({"shard", source, other, "--tp", "2", "--force", "--shard-info", dims},
                      other + ": holds no config.json, so it is not replaced; choose another path");
  expect_config_error({"shard", source, dir.path(), "--tp", "2", "--force", "--shard-info", dims},
                      dir.path() + ": holds " + source + ", which is read; choose another path");
}

std::vector<float> logits_with(const TempDir& dir, const Strings& flags) {
  expect_quiet(joined(
      {"logits", kPlain, "--tokens", "1,2,3,200", "--force", "--out", dir.at("logits")}, flags));
  const std::string bytes = testing::tensor_text(*io::TensorFile::open(dir.at("logits")), "logits");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Rules in TVM's form in place of the model's own.
TEST(ShardInfoFiles, OfTvmCutAModelThatRuns) {
  const TempDir dir;
  const auto model = io::TensorFile::open(kPlain);
  json rules;
  for (const io::TensorMeta& tensor : model->tensors()) {
    if (!tensor.name.ends_with("down_proj.weight")) continue;
    const json shape = {2, tensor.shape[0], tensor.shape[1] / 2};
    rules[tensor.name] =
        json::array({json::array({"tests.disco.shard_dim_1", json::array({shape, "float32"}), 2})});
  }
  ASSERT_GT(rules.size(), 0U);
  const std::string info = dir.write("info.json", rules.dump());
  const std::string functions = dir.write("functions.json", cases().at("functions").dump());
  const auto whole = logits_with(dir, {});
  const auto cut = logits_with(dir, {"--tp", "2", "--shard-info", info, "--functions", functions});
  ASSERT_EQ(cut.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(cut[i], whole[i], 1e-4F) << i;
}

}  // namespace
}  // namespace weft::cli
