#include "weft/text/bpe/bpe_model.h"

#include <algorithm>

#include "weft/text/unicode/utf8.h"

namespace weft::text {

std::array<TokenId, 256> BpeModel::no_ids() {
  std::array<TokenId, 256> ids{};
  ids.fill(-1);
  return ids;
}

void BpeModel::Encoder::add_token(TokenId id) {
  if (has_unknown_) symbols_.push_back(model_.unknown);
  has_unknown_ = false;
  symbols_.push_back(id);
}

void BpeModel::Encoder::add_unknown() {
  if (model_.unknown < 0) return;
  if (has_unknown_ && !model_.fuses_unknown) symbols_.push_back(model_.unknown);
  has_unknown_ = true;
}

// As in Hugging Face tokenizers, bytes do not end a run of unknown characters: these come after.
bool BpeModel::Encoder::add_bytes(std::string_view character) {
  const auto id_of = [&](char byte) { return model_.byte_ids[static_cast<uint8_t>(byte)]; };
  const bool has_all =
      std::all_of(character.begin(), character.end(), [&](char byte) { return id_of(byte) >= 0; });
  if (!has_all) return false;
  for (const char byte : character) symbols_.push_back(id_of(byte));
  return true;
}

void BpeModel::Encoder::load_bytes(std::string_view piece) {
  for (const char byte : piece) {
    const TokenId id = model_.byte_ids[static_cast<uint8_t>(byte)];
    if (id >= 0) {
      add_token(id);
    } else {
      add_unknown();
    }
  }
}

void BpeModel::Encoder::load_chars(std::string_view piece) {
  while (!piece.empty()) {
    const Utf8Step step = utf8_step(piece);
    const auto it = model_.char_ids.find(step.code);
    if (it != model_.char_ids.end()) {
      add_token(it->second);
    } else if (!add_bytes(piece.substr(0, step.size))) {
      add_unknown();
    }
    piece.remove_prefix(step.size);
  }
}

void BpeModel::Encoder::expand_parts(size_t begin, std::vector<TokenId>& out) {
  symbols_.assign(out.begin() + static_cast<ptrdiff_t>(begin), out.end());
  const std::vector<TokenId> merged = symbols_;
  symbols_.clear();
  for (const TokenId id : merged) {
    if (id < model_.first_part) {
      add_token(id);
      continue;
    }
    std::string character;
    append_utf8(character, model_.parts[static_cast<size_t>(id - model_.first_part)]);
    if (!add_bytes(character)) add_unknown();
  }
  if (has_unknown_) symbols_.push_back(model_.unknown);
  has_unknown_ = false;
  out.resize(begin);
  out.insert(out.end(), symbols_.begin(), symbols_.end());
}

void BpeModel::Encoder::encode(std::string_view piece, std::vector<TokenId>& out) {
  if (!model_.whole_pieces.empty()) {
    const auto it = model_.whole_pieces.find(std::string(piece));
    if (it != model_.whole_pieces.end()) {
      out.push_back(it->second);
      return;
    }
  }
  symbols_.clear();
  if (model_.is_byte_level) {
    load_bytes(piece);
  } else {
    load_chars(piece);
  }
  if (has_unknown_) symbols_.push_back(model_.unknown);
  has_unknown_ = false;
  const size_t begin = out.size();
  merger_.merge(symbols_, out);
  if (!model_.parts.empty()) expand_parts(begin, out);
}

}  // namespace weft::text
