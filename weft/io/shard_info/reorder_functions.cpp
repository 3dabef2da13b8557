#include "weft/core/error.h"
#include "weft/io/shard_info/function_table.h"

// One function and one row of the table for each way to put elements in another order.

namespace weft::io {
namespace {

using core::check;
using core::ShapeError;
using Ints = std::vector<int64_t>;

// Rows of query and of key/value heads in a fused tensor.
struct FusedHeads {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  int64_t heads_per_kv() const { return num_heads / num_kv_heads; }
  Ints segments() const {
    return {num_heads * head_dim, num_kv_heads * head_dim, num_kv_heads * head_dim};
  }
};

// The head counts are the arguments `first` and `first` + 1. `wants_groups`: kv heads divide heads.
FusedHeads fused_heads(const FunctionCall& call, size_t first, bool wants_groups) {
  const int64_t heads = call.integer(first);
  const int64_t kv = call.integer(first + 1);
  constexpr int64_t kMost = 1 << 20;
  check<ShapeError>(heads >= 1 && kv >= 1 && heads <= kMost && kv <= kMost, heads, " heads and ",
                    kv, " kv heads, expected 1 to ", kMost);
  check<ShapeError>(!wants_groups || heads % kv == 0, heads, " heads over ", kv,
                    " kv heads, expected a multiple");
  const View& input = call.input();
  check<ShapeError>(input.num_dims() >= 1 && input.size(0) % (heads + 2 * kv) == 0, "rows of ",
                    core::list_text(input.shape()), " are no multiple of ", heads, " + 2 * ", kv,
                    " heads; check the head counts");
  return {heads, kv, input.size(0) / (heads + 2 * kv)};
}

int64_t part_index(const std::string& part) {
  if (part == "q") return 0;
  if (part == "k") return 1;
  check<ShapeError>(part == "v", "part ", core::quote(part), ", expected 'q', 'k' or 'v'");
  return 2;
}

View cut_dim(const View& view, int64_t dim, int64_t parts, bool parts_first) {
  check<ShapeError>(dim >= 0 && dim < view.num_dims() && parts >= 1 && view.size(dim) % parts == 0,
                    "dim ", dim, " of ", core::list_text(view.shape()), " in ", parts,
                    " parts; expected a dim whose size is a multiple");
  const int64_t each = view.size(dim) / parts;
  return view.unflatten(dim, parts_first ? Ints{parts, each} : Ints{each, parts});
}

View swap(const View& view, int64_t a, int64_t b) {
  Ints order;
  for (int64_t dim = 0; dim < view.num_dims(); ++dim) {
    order.push_back(dim == a ? b : (dim == b ? a : dim));
  }
  return view.permute(order);
}

View interleave(const FunctionCall& call) {
  const int64_t dim = call.integer(0);
  const View parts = cut_dim(call.input(), dim, call.integer(1), true);
  return swap(parts, dim, dim + 1).flatten(dim, dim + 1);
}

View deinterleave(const FunctionCall& call) {
  const int64_t dim = call.integer(0);
  const View parts = cut_dim(call.input(), dim, call.integer(1), false);
  return swap(parts, dim, dim + 1).flatten(dim, dim + 1);
}

// Rows of each head [half, 2] to [2, half], or back.
View swap_rope_rows(const FunctionCall& call, bool pairs_first) {
  const View heads = cut_dim(call.input(), 0, call.integer(0), true);
  return swap(cut_dim(heads, 1, 2, pairs_first), 1, 2).flatten(0, 2);
}

View combine_qkv(const FunctionCall& call) {
  check<ShapeError>(call.inputs.size() == 3, call.inputs.size(),
                    " tensors, expected q, k and v in \"from\"");
  return View::cat(call.inputs, 0);
}

// Rows that make each head's keys, then those that make its values.
View combine_latent_heads(const FunctionCall& call) {
  check<ShapeError>(
      call.inputs.size() == 2 && call.inputs[0].num_dims() == 3 && call.inputs[1].num_dims() == 3,
      call.inputs.size(),
      " tensors, expected keys [heads, latent, dim] and values [heads, dim, latent] "
      "in \"from\"");
  const std::vector<View> parts = {swap(call.inputs[0], 1, 2), call.inputs[1]};
  return View::cat(parts, 1).flatten(0, 1);
}

View uncombine_qkv(const FunctionCall& call) {
  const FusedHeads fused = fused_heads(call, 1, false);
  return call.input().segment(0, fused.segments(), part_index(call.text(0)));
}

// [q | k | v] to each kv head's query heads, key head and value head together.
View interleave_qkv(const FunctionCall& call) {
  const FusedHeads fused = fused_heads(call, 0, true);
  std::vector<View> parts;
  for (const int64_t index : {0, 1, 2}) {
    const View part = call.input().segment(0, fused.segments(), index);
    parts.push_back(cut_dim(part, 0, fused.num_kv_heads, true));
  }
  return View::cat(parts, 1).flatten(0, 1);
}

View deinterleave_qkv(const FunctionCall& call) {
  const FusedHeads fused = fused_heads(call, 0, true);
  const View groups = cut_dim(call.input(), 0, fused.num_kv_heads, true);
  const Ints lengths = {fused.heads_per_kv() * fused.head_dim, fused.head_dim, fused.head_dim};
  std::vector<View> parts;
  for (const int64_t index : {0, 1, 2}) {
    parts.push_back(groups.segment(1, lengths, index).flatten(0, 1));
  }
  return View::cat(parts, 0);
}

// Groups of several parts each to all groups' first parts, then all second ones, and so on.
View ungroup(const FunctionCall& call) {
  const View groups = cut_dim(call.input(), 0, call.integer(0), true);
  const Ints& lengths = call.list(1);
  std::vector<View> parts;
  for (size_t index = 0; index < lengths.size(); ++index) {
    parts.push_back(groups.segment(1, lengths, static_cast<int64_t>(index)).flatten(0, 1));
  }
  check<ShapeError>(!parts.empty(), "groups of no parts, expected at least 1");
  return View::cat(parts, 0);
}

View cat(const FunctionCall& call) {
  if (!call.has(1)) return View::cat(call.inputs, call.integer(0));
  std::vector<View> values;
  for (const View& input : call.inputs) values.push_back(input.as_bits(call.integer(1)));
  return View::cat(values, call.integer(0));
}

View ranges(const FunctionCall& call) {
  const Ints& starts = call.list(1);
  const Ints& lengths = call.list(2);
  check<ShapeError>(!starts.empty() && starts.size() == lengths.size(), starts.size(),
                    " starts and ", lengths.size(), " lengths, expected as many of both");
  std::vector<shard::Range> list;
  for (size_t i = 0; i < starts.size(); ++i) list.push_back({starts[i], lengths[i]});
  return call.input().ranges(call.integer(0), list);
}

View transpose(const FunctionCall& call) {
  const View& input = call.input();
  const int64_t a = call.integer(0);
  const int64_t b = call.integer(1);
  check<ShapeError>(a >= 0 && b >= 0 && a < input.num_dims() && b < input.num_dims(), "dims ", a,
                    " and ", b, " of ", core::list_text(input.shape()), ", expected 0 to ",
                    input.num_dims() - 1);
  return swap(input, a, b);
}

ViewFunction row(const char* name, const char* signature, const char* summary,
                 std::function<View(const FunctionCall&)> apply, bool takes_many = false) {
  ViewFunction function;
  function.name = name;
  function.signature = signature;
  function.summary = summary;
  function.apply = std::move(apply);
  function.takes_many = takes_many;
  return function;
}

}  // namespace

std::vector<ViewFunction> reorder_functions() {
  using Call = FunctionCall;
  return {
      row("narrow", "dim start length", "a range of one dim",
          [](const Call& c) { return c.input().narrow(c.integer(0), c.integer(1), c.integer(2)); }),
      row("ranges", "dim starts[] lengths[]", "ranges of one dim, one after the other", ranges),
      row("select", "dim index", "one index of a dim, which goes",
          [](const Call& c) { return c.input().select(c.integer(0), c.integer(1)); }),
      row("segment", "dim lengths[] index", "one part of a fused dim",
          [](const Call& c) { return c.input().segment(c.integer(0), c.list(1), c.integer(2)); }),
      row("permute", "order[]", "dims in another order",
          [](const Call& c) { return c.input().permute(c.list(0)); }),
      row("transpose", "dim other", "two dims swapped", transpose),
      row("flatten", "first last", "dims merged into one",
          [](const Call& c) { return c.input().flatten(c.integer(0), c.integer(1)); }),
      row("unflatten", "dim sizes[]", "one dim as several",
          [](const Call& c) { return c.input().unflatten(c.integer(0), c.list(1)); }),
      row("reshape", "shape[]", "another shape, row-major",
          [](const Call& c) { return c.input().reshape(c.list(0)); }),
      row("as_bits", "bits", "words along the last dim as values of so many bits",
          [](const Call& c) { return c.input().as_bits(c.integer(0)); }),
      row("repeat", "dim times", "each index several times",
          [](const Call& c) { return c.input().repeat(c.integer(0), c.integer(1)); }),
      row("cat", "dim bits?",
          "tensors one after the other along a dim; of packed words, as values of so many bits",
          cat, true),
      row(
          "stack", "dim", "tensors along a new dim: experts",
          [](const Call& c) { return View::stack(c.inputs, c.integer(0)); }, true),
      row("interleave", "dim parts", "parts of a dim, one index of each in turn", interleave),
      row("deinterleave", "dim parts", "the inverse of interleave", deinterleave),
      row("combine_qkv", "", "q, k and v fused by rows", combine_qkv, true),
      row("uncombine_qkv", "part: heads kv_heads", "'q', 'k' or 'v' of a fused one", uncombine_qkv),
      row("combine_latent_heads", "",
          "of latent attention, what makes keys, transposed, and what makes values, head by head",
          combine_latent_heads, true),
      row("interleave_qkv", "heads kv_heads", "fused rows grouped by kv head", interleave_qkv),
      row("deinterleave_qkv", "heads kv_heads", "the inverse of interleave_qkv", deinterleave_qkv),
      row("ungroup", "groups lengths[]",
          "rows of groups of parts, as many rows of each, part by part instead", ungroup),
      row("permute_rope", "heads", "rows of halves to rows of pairs, as GGUF has q and k",
          [](const Call& c) { return swap_rope_rows(c, true); }),
      row("unpermute_rope", "heads", "the inverse of permute_rope",
          [](const Call& c) { return swap_rope_rows(c, false); }),
  };
}

}  // namespace weft::io
