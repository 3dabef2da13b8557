#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/text/bpe/bpe.h"

namespace weft::text {

/// The `BPE` model of Hugging Face tokenizers, over the bytes or the characters of a piece.
struct BpeModel {
  /// Pieces are bytes, each a token; else they are characters.
  bool is_byte_level = true;
  /// The token of each byte, or -1. Over characters: of a byte of an unknown character.
  std::array<TokenId, 256> byte_ids = no_ids();
  /// The token of each character, of models over characters.
  std::unordered_map<char32_t, TokenId> char_ids;
  /// Characters that are no tokens but parts of some have ids from here on while they are merged.
  TokenId first_part = -1;
  std::vector<char32_t> parts;
  MergeTable merges{0};
  /// Pieces that are a token as a whole, whatever the merges say.
  std::unordered_map<std::string, TokenId> whole_pieces;
  /// What an unknown character becomes; -1: nothing.
  TokenId unknown = -1;
  /// Unknown characters in a row become one token.
  bool fuses_unknown = false;

  /// Appends the ids of pieces; keeps its buffers between calls, use one per thread.
  class Encoder {
   public:
    explicit Encoder(const BpeModel& model) : model_(model), merger_(model.merges) {}
    void encode(std::string_view piece, std::vector<TokenId>& out);

   private:
    void load_bytes(std::string_view piece);
    void load_chars(std::string_view piece);
    void add_token(TokenId id);
    void add_unknown();
    bool add_bytes(std::string_view character);
    void expand_parts(size_t begin, std::vector<TokenId>& out);

    const BpeModel& model_;
    BpeMerger merger_;
    std::vector<TokenId> symbols_;
    bool has_unknown_ = false;
  };

  static std::array<TokenId, 256> no_ids();
};

}  // namespace weft::text
