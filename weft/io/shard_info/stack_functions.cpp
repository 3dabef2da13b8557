#include <algorithm>
#include <array>
#include <string_view>

#include "weft/core/error.h"
#include "weft/io/shard_info/function_table.h"

// TVM's and MLC's way to cut: all shards, of one size, along a new dim 0. One function and one row
// of the table for each way, and MLC's names for them.

namespace weft::io {
namespace {

using core::check;
using core::ConfigError;
using core::quote;
using core::ShapeError;
using Ints = std::vector<int64_t>;

constexpr int64_t kMostShards = int64_t{1} << 16;

View stack_shards(const View& input, const StackCut& cut) {
  check<ShapeError>(cut.dim >= 0 && cut.dim < input.num_dims(), "dim ", cut.dim, " of ",
                    core::list_text(input.shape()), ", expected 0 to ", input.num_dims() - 1);
  check<ShapeError>(cut.n >= 1 && cut.n <= kMostShards, cut.n, " shards, expected 1 to ",
                    kMostShards);
  const Ints segments = cut.lengths.empty() ? Ints{input.size(cut.dim)} : cut.lengths;
  for (const int64_t segment : segments) {
    check<ShapeError>(segment % cut.n == 0, "a segment of ", segment, " in ", cut.n,
                      " equal shards; weft's form cuts unevenly");
  }
  std::vector<View> shards;
  for (int64_t rank = 0; rank < cut.n; ++rank) {
    shards.push_back(input.shard({cut.dim, cut.lengths, 1}, cut.n, rank));
  }
  return View::stack(shards, 0);
}

StackCut given_cut(const FunctionCall& call) {
  StackCut cut{call.integer(0), call.integer(1), {}};
  for (size_t i = 2; call.has(i); ++i) cut.lengths.push_back(call.integer(i));
  return cut;
}

// The number of shards and the dim that is cut, by the shape that shard_info declares.
StackCut declared_cut(const FunctionCall& call) {
  const Ints& input = call.input().shape();
  check<ConfigError>(call.declared != nullptr,
                     "cuts as shard_info declares the result, which it doesn't; use "
                     "weft.stack_shards");
  const Ints& declared = call.declared->shape;
  check<ShapeError>(declared.size() == input.size() + 1 && !input.empty(),
                    "the result is declared ", core::list_text(declared),
                    ", expected one dim more than ", core::list_text(input));
  StackCut cut{0, declared[0], {}};
  int64_t num_cut = 0;
  for (size_t dim = 0; dim < input.size(); ++dim) {
    if (input[dim] == declared[dim + 1]) continue;
    cut.dim = static_cast<int64_t>(dim);
    ++num_cut;
  }
  check<ShapeError>(num_cut == (cut.n == 1 ? 0 : 1), core::list_text(input), " in ", cut.n,
                    " shards is declared ", core::list_text(declared), ", which cuts ", num_cut,
                    " dims, expected ", cut.n == 1 ? 0 : 1);
  return cut;
}

StackCut equal_parts(const FunctionCall& call, int64_t parts) {
  StackCut cut = declared_cut(call);
  if (cut.n == 1) return cut;  // The declared shape does not tell which dim would be cut.
  const int64_t size = call.input().size(cut.dim);
  check<ShapeError>(parts >= 1 && size >= parts && size % parts == 0, "dim ", cut.dim, " of ",
                    core::list_text(call.input().shape()), " in ", parts,
                    " equal parts; expected a divisor");
  if (parts > 1) cut.lengths.assign(static_cast<size_t>(parts), size / parts);
  return cut;
}

StackCut declared_parts(const FunctionCall& call) {
  return equal_parts(call, call.integer_or(0, 1));
}

// MLC gives the same name to gate and up in one matrix and to an up projection alone.
StackCut gate_up_parts(const FunctionCall& call) {
  if (const StackCut cut = declared_cut(call); cut.n == 1) return cut;
  const std::string& tensor = call.input().tensor_name();
  const auto holds = [&](const char* part) { return tensor.find(part) != std::string::npos; };
  if (holds("gate_up") || holds("e1_e3")) return equal_parts(call, 2);
  check<ConfigError>(holds("up_proj"), "cuts one matrix or two fused ones, and ", quote(tensor),
                     " doesn't say which; bind the name in a file of functions to [\"",
                     "weft.stack_declared\", 1] or 2");
  return equal_parts(call, 1);
}

// Segments of q, k and v rows, and the features of a head.
struct FusedRows {
  Ints lengths;
  int64_t head_dim = 0;
};

FusedRows fused_rows(const View& input, int64_t dim, const HeadCounts& counts) {
  constexpr int64_t kMost = 1 << 20;
  const auto [heads, kv_heads] = counts;
  check<ConfigError>(heads >= 1 && kv_heads >= 1 && heads <= kMost && kv_heads <= kMost, heads,
                     " heads and ", kv_heads, " kv heads, expected 1 to ", kMost);
  const int64_t count = heads + 2 * kv_heads;
  check<ShapeError>(dim < input.num_dims() && input.size(dim) % count == 0, "dim ", dim, " of ",
                    core::list_text(input.shape()), " is no multiple of ", heads, " + 2 * ",
                    kv_heads, " heads; check the head counts");
  const int64_t head_dim = input.size(dim) / count;
  return {{heads * head_dim, kv_heads * head_dim, kv_heads * head_dim}, head_dim};
}

StackCut declared_qkv(const FunctionCall& call) {
  StackCut cut = declared_cut(call);
  if (cut.n == 1) return cut;
  cut.lengths = fused_rows(call.input(), cut.dim, {call.integer(0), call.integer(1)}).lengths;
  return cut;
}

// [q | k | v] rows to [n, heads of a shard, head dim, …].
View stack_heads(const FunctionCall& call) {
  const int64_t n = call.integer(0), heads = call.integer(1), kv_heads = call.integer(2);
  check<ShapeError>(n >= 1 && heads % n == 0 && kv_heads % n == 0, heads, " heads and ", kv_heads,
                    " kv heads in ", n, " equal shards; shard_segments cuts unevenly");
  const FusedRows rows = fused_rows(call.input(), 0, {heads, kv_heads});
  return stack_shards(call.input(), {0, n, rows.lengths})
      .unflatten(1, Ints{(heads + 2 * kv_heads) / n, rows.head_dim});
}

ViewFunction row(const char* name, const char* signature, const char* summary,
                 StackCut (*cut)(const FunctionCall&)) {
  ViewFunction function;
  function.name = name;
  function.kind = FunctionKind::kStack;
  function.signature = signature;
  function.summary = summary;
  function.stack_cut = cut;
  function.apply = [cut](const FunctionCall& call) {
    return stack_shards(call.input(), cut(call));
  };
  return function;
}

ViewFunction heads_row() {
  ViewFunction function;
  function.name = "weft.stack_heads";
  function.kind = FunctionKind::kStack;
  function.signature = "n heads kv_heads";
  function.summary = "TVM's test: n equal shards of a fused [q | k | v] as [n, heads, head dim, …]";
  function.apply = stack_heads;
  return function;
}

constexpr char kDeclared[] = "weft.stack_declared";
constexpr char kDeclaredQkv[] = "weft.stack_qkv";
constexpr char kGateUp[] = "weft.stack_gate_up";

// What MLC's models name their cuts, without "_shard_" and endings.
constexpr std::array<std::string_view, 8> kTwoParts = {
    "gate_up",    "mlp_gate_up_proj", "moe_gate_up",  "shared_experts_gate_up",
    "moe_mlp_up", "shared_mlp_up",    "dense_mlp_up", "expert_mlp_up"};
constexpr std::array<std::string_view, 27> kOnePart = {"q",
                                                       "k",
                                                       "v",
                                                       "o",
                                                       "q_norm",
                                                       "k_norm",
                                                       "q_b",
                                                       "kv_b",
                                                       "kv_b_weight_w_uk",
                                                       "kv_b_weight_w_uv",
                                                       "down",
                                                       "mlp_down",
                                                       "moe_mlp_down",
                                                       "shared_mlp_down",
                                                       "dense_mlp_down",
                                                       "expert_mlp_down",
                                                       "shared_experts_down",
                                                       "c_fc",
                                                       "c_proj",
                                                       "mlp_c_proj",
                                                       "attn_c_proj",
                                                       "dense",
                                                       "dense_h_to_4h",
                                                       "dense_4h_to_h",
                                                       "mlp_fc1",
                                                       "mlp_fc2",
                                                       "router"};

template <size_t kSize>
bool has(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool strip(std::string_view& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.remove_suffix(ending.size());
  return true;
}

// Without what MLC adds for quantized parts, weights, biases and layers: "qkv_weight_q_scale".
std::string_view stem_of(std::string_view name) {
  static_cast<void>(strip(name, "_q_weight") || strip(name, "_q_scale"));
  static_cast<void>(strip(name, "_weight") || strip(name, "_bias"));
  const size_t last = name.find_last_not_of("0123456789");
  const bool is_numbered = last != std::string_view::npos && last + 1 < name.size();
  return is_numbered && name[last] == '_' ? name.substr(0, last) : name;
}

}  // namespace

std::vector<ViewFunction> stack_functions() {
  return {
      row("weft.stack_shards", "dim n lengths*", "TVM's way: n equal shards along a new dim 0",
          given_cut),
      heads_row(),
      row(kDeclared, "parts?",
          "shards along the dim that the declared result has smaller, of each of so many equal "
          "parts",
          declared_parts),
      row(kGateUp, "", "the same of gate and up, or of up alone, as the parameter's name says",
          gate_up_parts),
      row(kDeclaredQkv, "heads kv_heads", "the same of each of a fused q, k and v", declared_qkv),
  };
}

std::optional<FunctionBinding> mlc_function(const std::string& name,
                                            const std::optional<HeadCounts>& heads,
                                            const std::string& where) {
  constexpr std::string_view kPrefix = "_shard_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view stem = stem_of(std::string_view(name).substr(kPrefix.size()));
  if (has(kOnePart, stem)) return FunctionBinding{kDeclared, {}};
  if (has(kTwoParts, stem)) return FunctionBinding{kDeclared, {int64_t{2}}};
  if (stem == "mlp_up") return FunctionBinding{kGateUp, {}};
  if (stem != "qkv") return std::nullopt;
  check<ConfigError>(heads.has_value(), where, ": ", quote(name),
                     " cuts q, k and v, and nothing says how many heads there are; put config.json "
                     "or mlc-chat-config.json beside the tensors, or bind the name in a "
                     "file of functions: {\"",
                     name, "\": [\"", kDeclaredQkv, "\", HEADS, KV_HEADS]}");
  return FunctionBinding{kDeclaredQkv, {heads->heads, heads->kv_heads}};
}

}  // namespace weft::io
