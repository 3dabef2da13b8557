// TVM's pull request on load-time sharding and its loader's tests, as a user of the library writes
// them: tests/sources/README.md has the table of lines. From the command line:
// docs/shard_info.md.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist.h"
#include "weft/io.h"

namespace io = weft::io;
using weft::core::join;
using weft::testing::TempDir;

namespace {

using Ints = std::vector<int64_t>;
using Tensors = std::map<std::string, at::Tensor>;
// input and extra inputs to output: def shard_dim_1(input: NDArray, num_shards, output: NDArray)
using NumpyFunction = std::function<at::Tensor(const at::Tensor& input, const Ints& extras)>;

at::ScalarType type_of(io::Dtype dtype) {
  return dtype == io::Dtype::kF16 ? at::kHalf : at::kFloat;
}

const char* name_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf ? "float16" : "float32";
}

// A function of the user's own on whole tensors, as TVM calls it.
class UserFunction : public io::EagerFunction {
 public:
  explicit UserFunction(NumpyFunction function) : function_(std::move(function)) {}

  io::TensorType output_type(const io::TensorType& input,
                             std::span<const io::Argument> arguments) const override {
    const at::Tensor like = at::empty(input.shape, at::kFloat);
    return {function_(like, integers(arguments)).sizes().vec(), input.dtype};
  }

  void run(std::span<const std::byte> input, const io::TensorType& input_type,
           std::span<const io::Argument> arguments, std::span<std::byte> output) const override {
    const at::Tensor x = at::empty(input_type.shape, type_of(input_type.dtype));
    ASSERT_EQ(x.nbytes(), input.size());
    std::copy(input.begin(), input.end(), static_cast<std::byte*>(x.mutable_data_ptr()));
    const at::Tensor y = function_(x, integers(arguments)).contiguous();
    ASSERT_EQ(y.nbytes(), output.size());
    const auto* bytes = static_cast<const std::byte*>(y.const_data_ptr());
    std::copy(bytes, bytes + y.nbytes(), output.begin());
  }

 private:
  static Ints integers(std::span<const io::Argument> arguments) {
    Ints numbers;
    for (const io::Argument& argument : arguments) numbers.push_back(std::get<int64_t>(argument));
    return numbers;
  }

  NumpyFunction function_;
};

at::Tensor shard_dim_0(const at::Tensor& src, const Ints& extras) {
  const int64_t num_shards = extras.at(0), s_0 = src.size(0), s_1 = src.size(1);
  return src.reshape({num_shards, s_0 / num_shards, s_1});
}

at::Tensor shard_dim_1(const at::Tensor& src, const Ints& extras) {
  const int64_t num_shards = extras.at(0), s_0 = src.size(0), s_1 = src.size(1);
  return src.reshape({s_0, num_shards, s_1 / num_shards}).permute({1, 0, 2});
}

at::Tensor shard_qkv_0(const at::Tensor& src, const Ints& extras) {
  const int64_t num_shards = extras.at(0), q_heads = extras.at(1), kv_heads = extras.at(2);
  const int64_t head_dim = src.size(0) / (q_heads + 2 * kv_heads);
  const auto heads = [&](int64_t start, int64_t count) {
    return src.narrow(0, start * head_dim, count * head_dim)
        .reshape({num_shards, count / num_shards, head_dim, src.size(1)});
  };
  return at::cat({heads(0, q_heads), heads(q_heads, kv_heads), heads(q_heads + kv_heads, kv_heads)},
                 1);
}

at::Tensor shard_qkv_1(const at::Tensor& src, const Ints&) {
  return src.reshape({src.size(0), -1, src.size(3)});
}

// The user's own functions under their names, and weft's functions on views for the same names.
io::FunctionTable users_functions() {
  io::FunctionTable table;
  const auto add = [&](const char* name, NumpyFunction function) {
    table.add(join("tests.disco.", name), std::make_shared<UserFunction>(std::move(function)));
  };
  add("shard_dim_0", shard_dim_0);
  add("shard_dim_1", shard_dim_1);
  add("shard_qkv_0", shard_qkv_0);
  add("shard_qkv_1", shard_qkv_1);
  return table;
}

io::FunctionTable wefts_functions() {
  io::FunctionTable table;
  io::parse_functions(R"({"tests.disco.shard_dim_0": ["weft.stack_shards", 0],
                          "tests.disco.shard_dim_1": ["weft.stack_shards", 1],
                          "tests.disco.shard_qkv_0": ["weft.stack_heads"],
                          "tests.disco.shard_qkv_1": ["flatten", 1, 2]})",
                      "functions", table);
  return table;
}

// tvmjs.dump_ndarray_cache: raw bytes in one file, and a list of them.
void write_cache(const TempDir& folder, const Tensors& params) {
  std::string bytes, records;
  for (const auto& [name, tensor] : params) {
    records += join(records.empty() ? "" : ",", R"({"name":")", name, R"(","shape":)",
                    weft::core::list_text(tensor.sizes()), R"(,"dtype":")", name_of(tensor),
                    R"(","format":"raw","nbytes":)", tensor.nbytes(), R"(,"byteOffset":)",
                    bytes.size(), "}");
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  folder.write("params_shard_0.bin", bytes);
  folder.write(
      "ndarray-cache.json",
      join(R"({"metadata":{},"records":[{"dataPath":"params_shard_0.bin",)",
           R"("format":"raw-shard","nbytes":)", bytes.size(), R"(,"records":[)", records, "]}]}"));
}

at::Tensor numbers(const Ints& shape, at::ScalarType type) {
  return at::rand(shape).mul(2).sub(1).to(type);
}

std::string step(const char* name, const at::Tensor& result, const std::string& extras) {
  return join(R"([")", name, R"(", [)", weft::core::list_text(result.sizes()), R"(, ")",
              name_of(result), R"("])", extras, "]");
}

// The shard_info of the pull request, "x_0" by its second dim and "x_1" by its first.
std::string two_params_info(const Tensors& params, int64_t n, Tensors& shards) {
  shards = {{"x_0", shard_dim_1(params.at("x_0"), {n})},
            {"x_1", shard_dim_0(params.at("x_1"), {n})}};
  return join(R"({"x_0": [)", step("tests.disco.shard_dim_1", shards.at("x_0"), join(", ", n)),
              R"(], "x_1": [)", step("tests.disco.shard_dim_0", shards.at("x_1"), join(", ", n)),
              "]}");
}

std::string qkv_info(const Tensors& params, int64_t n, Tensors& shards) {
  const int64_t q_heads = 8, kv_heads = 10;
  const at::Tensor heads = shard_qkv_0(params.at("w_qkv"), {n, q_heads, kv_heads});
  shards = {{"w_qkv", shard_qkv_1(heads, {})}};
  return join(R"({"w_qkv": [)",
              step("tests.disco.shard_qkv_0", heads, join(", ", n, ", ", q_heads, ", ", kv_heads)),
              ", ", step("tests.disco.shard_qkv_1", shards.at("w_qkv"), ""), "]}");
}

// loader = ShardLoader(path, ndarray_cache, shard_info); d_0 = loader.Load(i) of every rank
void expect_loaded(const TempDir& folder, const std::string& info, int64_t n,
                   const Tensors& shards) {
  const auto file = io::TensorFile::open(folder.at("ndarray-cache.json"));
  const io::ShardInfo shard_info = io::ShardInfo::parse(info, "shard_info");
  for (const io::FunctionTable& functions : {users_functions(), wefts_functions()}) {
    const io::ShardPlan plan = io::ShardPlan::make(*file, shard_info, n, functions);
    for (const auto& [name, shard] : shards) {
      for (int64_t rank = 0; rank < n; ++rank) {
        const at::Tensor d_0 =
            io::load_tensor(*file, plan.find(name)->of(rank), shard.scalar_type());
        EXPECT_TRUE(at::equal(d_0, shard.select(0, rank))) << name << " of rank " << rank;
      }
    }
  }
}

TEST(TvmPullRequest, ParametersAreCutByTheirFunctionsForAnyNumberOfShards) {
  at::manual_seed(12);
  const TempDir folder;
  const Tensors params = {{"x_0", numbers({48, 96}, at::kHalf)},
                          {"x_1", numbers({24, 128}, at::kFloat)}};
  write_cache(folder, params);
  for (const int64_t num_shards : {1, 2, 3, 4, 8}) {
    Tensors shards;
    const std::string info = two_params_info(params, num_shards, shards);
    expect_loaded(folder, info, num_shards, shards);
  }
}

// "serially applied": the second function gets what the first gave. 8 query heads beside 10 kv
// heads.
TEST(TvmPullRequest, FunctionsOfAParameterAreAppliedInTurn) {
  at::manual_seed(13);
  const TempDir folder;
  const Tensors params = {{"w_qkv", numbers({(8 + 2 * 10) * 10, 20}, at::kHalf)}};
  write_cache(folder, params);
  for (const int64_t num_shards : {1, 2}) {
    Tensors shards;
    const std::string info = qkv_info(params, num_shards, shards);
    expect_loaded(folder, info, num_shards, shards);
  }
}

TEST(TvmPullRequest, RanksLoadTheirOwnShardAlone) {
  at::manual_seed(14);
  const TempDir folder;
  const Tensors params = {{"x_0", numbers({64, 128}, at::kHalf)},
                          {"x_1", numbers({32, 128}, at::kFloat)}};
  write_cache(folder, params);
  Tensors shards;
  const std::string info = two_params_info(params, 2, shards);
  weft::test::run_ranks(2, [&](const weft::dist::World& world) {
    const auto file = io::TensorFile::open(folder.path());
    const io::ShardPlan plan = io::ShardPlan::make(*file, io::ShardInfo::parse(info, "shard_info"),
                                                   world.size(), wefts_functions());
    for (const io::PlannedParam& param : plan.params()) {
      const at::Tensor& shard = shards.at(param.name);
      const at::Tensor own = io::load_tensor(*file, param.of(world.rank()), shard.scalar_type());
      EXPECT_TRUE(at::equal(own, shard.select(0, world.rank()))) << param.name;
    }
    EXPECT_EQ(plan.planned_bytes(world.rank()),
              (params.at("x_0").nbytes() + params.at("x_1").nbytes()) / 2);
  });
}

// What a file says about a result is checked before anything is read.
TEST(TvmPullRequest, AResultOfAnotherShapeIsRefused) {
  at::manual_seed(15);
  const TempDir folder;
  write_cache(folder, {{"x_0", numbers({64, 128}, at::kHalf)}});
  const auto file = io::TensorFile::open(folder.path());
  const io::ShardInfo info = io::ShardInfo::parse(
      R"({"x_0": [["tests.disco.shard_dim_1", [[2, 64, 32], "float16"], 2]]})", "info.json");
  for (const io::FunctionTable& functions : {users_functions(), wefts_functions()}) {
    try {
      io::ShardPlan::make(*file, info, 2, functions);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const weft::core::Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "info.json: parameter 'x_0': step 1 'tests.disco.shard_dim_1': F16 [64, 128] gives "
                "F16 [2, 64, 64], expected F16 [2, 64, 32] as shard_info says; correct its shape, "
                "type or extras");
    }
  }
}

}  // namespace
