#include "weft/io/views/pieces.h"

#include <charconv>

#include "weft/core/error.h"

namespace weft::io {

using core::check;
using core::FormatError;
using core::quote;

namespace {

constexpr std::string_view kShard = "_shard-";
constexpr std::string_view kOf = "-of-";

// A number without sign or leading blanks. Nothing if other characters are in it.
std::optional<int64_t> parse_number(std::string_view text, const std::string& name) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  check<FormatError>(result.ec == std::errc(), "io.parse_piece_name: tensor ", quote(name),
                     ": a number above 2^63; rename it");
  return number;
}

// The pieces of one parameter, by index.
struct Pieces {
  std::map<int64_t, std::string> names;
  std::optional<int64_t> count;
};

void add_piece(Pieces& pieces, const PieceName& piece, const std::string& where) {
  check<FormatError>(pieces.names.empty() || pieces.count == piece.count, where,
                     ": pieces of different counts, ", pieces.count.value_or(0), " and ",
                     piece.count.value_or(0), "; keep those of one run");
  pieces.count = piece.count;
}

ParamRule piece_rule(const std::string& base, const Pieces& pieces, const int64_t* dim,
                     const std::string& where) {
  const int64_t count = pieces.count.value_or(static_cast<int64_t>(pieces.names.size()));
  ParamRule rule;
  rule.name = base;
  // Names are counted first: a hostile count takes no time.
  check<FormatError>(static_cast<int64_t>(pieces.names.size()) == count &&
                         pieces.names.rbegin()->first == count - 1,
                     where, ": parameter ", quote(base), ": ", pieces.names.size(),
                     " pieces, the last of index ", pieces.names.rbegin()->first, ", expected ",
                     count, "; a piece is missing");
  for (const auto& [index, name] : pieces.names) rule.from.push_back(name);
  ShardStep step;
  step.function = dim == nullptr ? "shard_pieces" : "cat";
  if (dim != nullptr) step.arguments.emplace_back(*dim);
  rule.steps.push_back(step);
  if (dim != nullptr) {
    step.function = "shard";
    rule.steps.push_back(std::move(step));
  }
  return rule;
}

}  // namespace

std::optional<PieceName> parse_piece_name(const std::string& name) {
  const size_t shard = name.rfind(kShard);
  if (shard == std::string::npos) return std::nullopt;
  PieceName piece{name.substr(0, shard), 0, std::nullopt};
  const std::string_view numbers = std::string_view(name).substr(shard + kShard.size());
  const size_t of = numbers.find(kOf);
  const auto index = parse_number(numbers.substr(0, of), name);
  if (!index) return std::nullopt;
  piece.index = *index;
  if (of == std::string_view::npos) return piece;
  piece.count = parse_number(numbers.substr(of + kOf.size()), name);
  if (!piece.count) return std::nullopt;
  check<FormatError>(*index >= 1 && *index <= *piece.count, "io.parse_piece_name: tensor ",
                     quote(name), ": piece ", *index, " of ", *piece.count, ", expected 1 to ",
                     *piece.count, "; rename it");
  --piece.index;
  return piece;
}

ShardInfo pieces_info(const TensorFile& file, const std::map<std::string, int64_t>& dims) {
  std::map<std::string, Pieces> by_base;
  for (const TensorMeta& tensor : file.tensors()) {
    const auto piece = parse_piece_name(tensor.name);
    if (!piece) continue;
    Pieces& pieces = by_base[piece->base];
    const std::string where = core::join(file.path(), ": parameter ", quote(piece->base));
    add_piece(pieces, *piece, where);
    check<FormatError>(pieces.names.emplace(piece->index, tensor.name).second, where, ": piece ",
                       quote(tensor.name), " stands twice; remove one");
  }
  ShardInfo info;
  info.where = file.path();
  for (const auto& [base, pieces] : by_base) {
    check<FormatError>(file.find(base) == nullptr, file.path(), ": parameter ", quote(base),
                       " is there whole and in pieces; remove one");
    const auto dim = dims.find(base);
    info.params.push_back(
        piece_rule(base, pieces, dim == dims.end() ? nullptr : &dim->second, file.path()));
  }
  return info;
}

}  // namespace weft::io
