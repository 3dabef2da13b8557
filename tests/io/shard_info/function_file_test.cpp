#include "weft/io/shard_info/function_file.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/io/views/plan_fixture.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::PlanFile;

using Arguments = std::vector<Argument>;

FunctionTable table_of(const std::string& text) {
  FunctionTable table;
  parse_functions(text, "FILE", table);
  return table;
}

std::string table_error(const std::string& text) {
  return error_text([&] { table_of(text); });
}

TEST(FunctionFile, BindsSomeArguments) {
  const FunctionTable table = table_of(R"({
      "rows": ["weft.stack_shards", 0],
      "swapped": ["weft.stack_shards", "$2", "$1", 4, 4],
      "heads": ["shard_heads", 0, 8, 2, "q"],
      "picked": ["segment", 0, [2, 4], "$1"],
      "_shard_o": ["weft.stack_shards", 1]})");
  const auto arguments = [&](const std::string& name, const Arguments& given) {
    return table.find(name, "here").arguments(given, "here");
  };
  EXPECT_EQ(table.find("rows", "here").view->name, "weft.stack_shards");
  EXPECT_EQ(arguments("rows", {3}), (Arguments{0, 3}));
  EXPECT_EQ(arguments("swapped", {3, 1}), (Arguments{1, 3, 4, 4}));
  EXPECT_EQ(arguments("heads", {}), (Arguments{0, 8, 2, std::string("q")}));
  EXPECT_EQ(arguments("picked", {1}), (Arguments{0, std::vector<int64_t>{2, 4}, 1}));
  EXPECT_EQ(table.find("_shard_o", "here").view->name, "weft.stack_shards");
  EXPECT_EQ(error_text([&] { arguments("swapped", {3}); }),
            "ConfigError: here: 1 arguments, expected at least 2 for '$2'");
  EXPECT_EQ(error_text([&] {
              arguments("swapped", {3, 1, 2});
            }),
            "ConfigError: here: 3 arguments, expected 2 for the function that the name stands for");
}

TEST(FunctionFile, ServesTvmsSteps) {
  const PlanFile file({{"x", Dtype::kF16, {4, 6}}});
  const FunctionTable table = table_of(R"({"tests.disco.shard_dim_1": ["weft.stack_shards", 1]})");
  const ShardPlan plan =
      file.plan(R"({"x": [["tests.disco.shard_dim_1", [[3, 4, 2], "float16"], 3]]})", 3, table);
  EXPECT_EQ(file.read(plan, "x", 2), file.bytes("x", file.whole("x").narrow(1, 4, 2)));
  EXPECT_EQ(
      file.plan_error(R"({"x": [["tests.disco.shard_dim_1", [[3, 4, 2], "float16"]]]})", 3, table),
      "ConfigError: INFO: parameter 'x': step 1 'tests.disco.shard_dim_1': arguments 1, "
      "expected weft.stack_shards dim n lengths*; x[] is a list, x: a text, x? may be left "
      "out, x* any number");
}

TEST(FunctionFile, RefusesWhatIsNone) {
  EXPECT_EQ(table_error("[]"), "FormatError: FILE: expected an object, got array");
  const std::string f = "FormatError: FILE: function 'f'";
  EXPECT_EQ(table_error(R"({"f": "shard"})"),
            f + ": expected [\"FUNCTION\", ARGUMENT…], got string");
  EXPECT_EQ(table_error(R"({"f": []})"), f + ": expected [\"FUNCTION\", ARGUMENT…], got array");
  EXPECT_EQ(table_error(R"({"f": ["shard", 1.5]})"),
            f + " argument 1: expected an integer, got 1.5");
  EXPECT_EQ(table_error(R"({"shard": ["cat", 0]})"),
            "ConfigError: FILE: function 'shard': there is a function 'shard' already; choose "
            "another name");
  EXPECT_EQ(table_error(R"({"a": ["shard", 0], "b": ["a"]})"),
            "ConfigError: FILE: function 'b': 'a' is a name that stands for another function, "
            "expected a function");
  EXPECT_TRUE(table_error(R"({"f": ["sharp", 0]})")
                  .starts_with("ConfigError: FILE: function 'f': unknown function 'sharp'; bind "));
  const testing::TempDir dir;
  FunctionTable table;
  read_functions(dir.write("f.json", R"({"f": ["shard"]})"), table);
  EXPECT_EQ(table.find("f", "here").view->name, "shard");
}

}  // namespace
}  // namespace weft::io
