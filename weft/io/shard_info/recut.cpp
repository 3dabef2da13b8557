#include "weft/io/shard_info/recut.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "weft/core/error.h"
#include "weft/io/shard_info/apply_steps.h"
#include "weft/io/shard_info/param_sources.h"
#include "weft/io/shard_info/rule_index.h"
#include "weft/io/shard_info/shard_info_json.h"
#include "weft/io/views/pieces.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::quote;
using core::ShapeError;

namespace {

// A shard function with all its arguments.
struct CutStep {
  const ViewFunction* function = nullptr;
  std::vector<Argument> arguments;

  bool is_whole() const { return function->name == "shard_whole"; }
  bool is_along_dim() const {
    return !arguments.empty() && std::holds_alternative<int64_t>(arguments[0]);
  }
  int64_t dim() const { return std::get<int64_t>(arguments[0]); }
};

// The last step of a rule, if it is a shard function.
std::optional<CutStep> cut_step(const ParamRule& rule, const FunctionTable& functions,
                                const std::string& where) {
  if (rule.steps.empty() || rule.is_stacked) return std::nullopt;
  const ShardStep& last = rule.steps.back();
  const FoundFunction found = functions.find(last.function, where);
  if (found.view == nullptr || found.view->kind != FunctionKind::kShard) return std::nullopt;
  CutStep step{found.view, found.arguments(last.arguments, where)};
  check_arguments(*step.function, step.arguments, where);
  return step;
}

// Which indices of `step`'s dim each of n ranks gets of a whole of `shape`: the function is applied
// to a tensor of one byte per index.
shard::Layout layout_of(const CutStep& step, const std::vector<int64_t>& shape, int64_t n) {
  TensorMeta index;
  index.name = "index";
  index.dtype = Dtype::kU8;
  index.shape.assign(shape.size(), 1);
  shard::Layout layout;
  layout.dim = step.dim();
  check<ShapeError>(layout.dim >= 0 && layout.dim < static_cast<int64_t>(shape.size()), "dim ",
                    layout.dim, " of ", core::list_text(shape));
  layout.size = shape[static_cast<size_t>(layout.dim)];
  index.shape[static_cast<size_t>(layout.dim)] = layout.size;
  index.num_bytes = static_cast<uint64_t>(layout.size);
  const View whole = View::of(index);
  for (int64_t rank = 0; rank < n; ++rank) {
    std::vector<shard::Range>& ranges = layout.ranges.emplace_back();
    step.function->apply({{&whole, 1}, step.arguments, n, rank})
        .for_each_run([&](const ByteRun& run) {
          ranges.push_back({static_cast<int64_t>(run.offset), static_cast<int64_t>(run.num_bytes)});
        });
  }
  return layout;
}

// CutPieces of one parameter, by rank.
using CutPieces = std::vector<const TensorMeta*>;

std::map<std::string, CutPieces> pieces_by_base(const TensorFile& file) {
  std::map<std::string, CutPieces> by_base;
  // Checks that no piece is missing, and returns the names in order.
  for (const ParamRule& rule : pieces_info(file).params) {
    for (const std::string& name : rule.from) by_base[rule.name].push_back(&file.require(name));
  }
  return by_base;
}

// Bits of the values that a rule sees in packed words; 0: it sees elements.
int64_t packed_bits(const ParamRule& rule) {
  const ShardStep& first = rule.steps.front();
  const size_t at = first.function == "cat" ? 1 : 0;
  const bool has_bits = (at == 1 || first.function == "as_bits") && first.arguments.size() > at;
  const auto* bits = has_bits ? std::get_if<int64_t>(&first.arguments[at]) : nullptr;
  return bits == nullptr ? 0 : *bits;
}

constexpr int64_t kWordBits = 32;

// Converts a shape between values of this many bits and the words that hold them.
std::vector<int64_t> in_words(std::vector<int64_t> shape, int64_t bits) {
  if (bits > 0) shape.back() = shape.back() * bits / kWordBits;
  return shape;
}
std::vector<int64_t> in_values(std::vector<int64_t> shape, int64_t bits) {
  if (bits > 0 && !shape.empty()) shape.back() = shape.back() * kWordBits / bits;
  return shape;
}

// The whole's shape: what the rule says, or the sum of the pieces.
std::vector<int64_t> whole_shape(const ParamRule& rule, const CutStep& step,
                                 const CutPieces& pieces, const std::string& where) {
  const bool has_only_cut = rule.steps.size() == (packed_bits(rule) > 0 ? 2U : 1U);
  if (rule.shape && has_only_cut) return *rule.shape;
  std::vector<int64_t> shape = pieces[0]->shape;
  const int64_t dim = step.dim();
  check<ShapeError>(dim >= 0 && dim < static_cast<int64_t>(shape.size()), where, ": dim ", dim,
                    " of pieces ", core::list_text(shape));
  int64_t& size = shape[static_cast<size_t>(dim)];
  for (size_t i = 1; i < pieces.size(); ++i) {
    check<ShapeError>(
        pieces[i]->shape.size() == shape.size() &&
            !__builtin_add_overflow(size, pieces[i]->shape[static_cast<size_t>(dim)], &size),
        where, ": pieces of different dims");
  }
  return shape;
}

void check_pieces(const CutPieces& pieces, const std::vector<int64_t>& shape,
                  const shard::Layout& layout, int64_t bits, const std::string& where) {
  const std::vector<int64_t> lengths = layout.lengths();
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    std::vector<int64_t> expected = shape;
    expected[static_cast<size_t>(layout.dim)] = lengths[rank];
    expected = in_words(std::move(expected), bits);
    check<FormatError>(pieces[rank]->shape == expected, where, ": piece ",
                       quote(pieces[rank]->name), " is ", core::list_text(pieces[rank]->shape),
                       ", expected ", core::list_text(expected), " of the whole ",
                       core::list_text(in_words(shape, bits)),
                       "; say in shard_info how it was cut, and its \"shape\"");
  }
}

ShardStep make_step(const std::string& function, std::vector<Argument> arguments) {
  ShardStep step;
  step.function = function;
  step.arguments = std::move(arguments);
  return step;
}

ParamRule join_rule(const std::string& name, const CutPieces& pieces, const ParamRule& rule,
                    const CutStep& step, const std::string& where) {
  const int64_t bits = packed_bits(rule);
  const std::vector<int64_t> shape = in_values(whole_shape(rule, step, pieces, where), bits);
  const auto layout = layout_of(step, shape, static_cast<int64_t>(pieces.size()));
  check_pieces(pieces, shape, layout, bits, where);
  shard::check_layout(layout, where);
  std::vector<int64_t> starts;
  std::vector<int64_t> lengths;
  for (const shard::Range& range : layout.gather_ranges()) {
    starts.push_back(range.start);
    lengths.push_back(range.length);
  }
  ParamRule joined;
  joined.name = name;
  for (const TensorMeta* piece : pieces) joined.from.push_back(piece->name);
  ShardStep cat = make_step("cat", {layout.dim});
  if (bits > 0) cat.arguments.emplace_back(bits);
  joined.steps = {std::move(cat),
                  make_step("ranges", {layout.dim, std::move(starts), std::move(lengths)}),
                  make_step(step.function->name, step.arguments)};
  return joined;
}

// What every rank holds whole needs no step, so that it is written once.
ShardInfo without_whole(ShardInfo info, const FunctionTable& functions) {
  for (ParamRule& rule : info.params) {
    const auto step = cut_step(rule, functions, parameter_where(info.where, rule.name));
    if (step && step->is_whole()) rule.steps.pop_back();
  }
  return info;
}

// The rule for pieces of what `param` becomes, if a shard function along one dim makes them.
std::optional<ParamRule> cut_rule(const ParamSources& param, const FunctionTable& functions,
                                  const std::string& where) {
  const auto step = cut_step(*param.rule, functions, where);
  if (!step || !step->is_along_dim()) return std::nullopt;
  const TensorType type = apply_steps(param, 1, functions, where).front().result.type();
  const int64_t bits = packed_bits(*param.rule);
  ParamRule rule;
  rule.name = param.name;
  rule.shape = in_words(type.shape, bits);
  rule.dtype = type.dtype;
  if (bits > 0) rule.steps.push_back(make_step("as_bits", {bits}));
  rule.steps.push_back(make_step(step->function->name, step->arguments));
  return rule;
}

// The same for one step that stacks equal shards of one dim: they are the balanced ones, too.
std::optional<ParamRule> stacked_cut_rule(const ParamSources& param, const FunctionTable& functions,
                                          const std::string& where) {
  if (param.rule->steps.size() != 1) return std::nullopt;
  const ShardStep& step = param.rule->steps.front();
  const FoundFunction found = functions.find(step.function, where);
  if (found.view == nullptr || found.view->stack_cut == nullptr) return std::nullopt;
  const View whole = View::of(*param.tensors.front());
  const std::vector<Argument> arguments = found.arguments(step.arguments, where);
  check_arguments(*found.view, arguments, where);
  const StackCut cut =
      found.view->stack_cut({{&whole, 1}, arguments, 1, 0, step.output ? &*step.output : nullptr});
  ParamRule rule;
  rule.name = param.name;
  rule.shape = whole.shape();
  rule.dtype = whole.dtype();
  rule.steps.push_back(cut.lengths.empty() ? make_step("shard", {cut.dim})
                                           : make_step("shard_segments", {cut.dim, cut.lengths}));
  return rule;
}

const std::string* text_of(const TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : std::get_if<std::string>(&found->second);
}

}  // namespace

std::optional<CutCheckpoint> read_cut_checkpoint(const TensorFile& file) {
  const std::string* world = text_of(file, kWorldKey);
  const std::string* rules = text_of(file, kShardInfoKey);
  if (world == nullptr || rules == nullptr) return std::nullopt;
  CutCheckpoint cut;
  const char* end = world->data() + world->size();
  const auto parsed = std::from_chars(world->data(), end, cut.num_ranks);
  check<FormatError>(parsed.ec == std::errc() && parsed.ptr == end && cut.num_ranks >= 1,
                     file.path(), ": metadata ", kWorldKey, " is ", quote(*world),
                     ", expected a number of ranks");
  cut.info = ShardInfo::parse(*rules, core::join(file.path(), ": metadata ", kShardInfoKey));
  return cut;
}

ShardInfo recut_info(const TensorFile& file, const ShardInfo& info,
                     const FunctionTable& functions) {
  const auto by_base = pieces_by_base(file);
  if (by_base.empty()) return without_whole(info, functions);
  ShardInfo joined;
  joined.where = info.where;
  const RuleIndex rules(info);
  for (const auto& [name, pieces] : by_base) {
    const std::string where = parameter_where(info.where, name);
    const ParamRule* rule = rules.find(name);
    const auto step = rule == nullptr ? std::nullopt : cut_step(*rule, functions, where);
    check<ConfigError>(step && step->is_along_dim(), where, ": ", pieces.size(), " pieces in ",
                       file.path(),
                       ", but no rule whose last step says along which dim they were cut; give "
                       "one in shard_info");
    joined.params.push_back(join_rule(name, pieces, *rule, *step, where));
  }
  return joined;
}

ShardInfo cut_rules(const TensorFile& file, const ShardInfo& info, const FunctionTable& functions) {
  ShardInfo rules;
  rules.where = info.where;
  for (const ParamSources& param : param_sources(file, info)) {
    if (param.rule == nullptr) continue;
    const std::string where = parameter_where(info.where, param.name);
    auto rule = param.rule->is_stacked ? stacked_cut_rule(param, functions, where)
                                       : cut_rule(param, functions, where);
    if (rule) rules.params.push_back(std::move(*rule));
  }
  return rules;
}

}  // namespace weft::io
