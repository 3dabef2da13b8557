#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::grammar {

/// How a grammar is written.
enum class Form {
  /// Any JSON object; the text is empty.
  kJsonObject,
  /// JSON schema, draft 2020-12, as far as schema.h says.
  kJsonSchema,
  /// A regular expression that the whole text matches.
  kRegex,
  /// EBNF in the form of llama.cpp's GBNF, which begins at the rule `root`.
  kEbnf,
  /// xgrammar's structural tag, a JSON object: texts with marks between which schemas hold.
  kStructuralTag,
};

/// A grammar as a user wrote it.
struct Source {
  Form form = Form::kJsonObject;
  std::string text;

  bool operator==(const Source& other) const = default;
};

/// The most bytes of a source.
inline constexpr size_t kMostSourceBytes = size_t{64} << 10;

/// The most white space between two tokens of JSON: enough for any indentation, and an end to it.
/// Structural tags say it themselves, as a schema's max_whitespace_cnt.
inline constexpr int kMostSpaces = 64;

/// Whether this build has grammars at all.
bool is_available();

/// A grammar that is compiled for a tokenizer. Immutable, safe from several threads.
class Grammar {
 public:
  struct Impl;
  explicit Grammar(std::unique_ptr<const Impl> impl);
  ~Grammar();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// Compiles grammars for one tokenizer and keeps the last ones. Safe from several threads.
class Compiler {
 public:
  /// `vocab_size`: the tokens that a model scores, which may be more than the tokenizer's. Takes
  /// time only when the first grammar is compiled.
  Compiler(text::Tokenizer tokenizer, int64_t vocab_size);
  ~Compiler();

  /// Throws ConfigError for a source that is wrong, too long, or says what is not supported; its
  /// message begins with "grammar" or "schema". Takes from milliseconds to seconds.
  std::shared_ptr<const Grammar> compile(const Source& source);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Follows one text through a grammar.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  /// A bit for each token, the lowest of the first word first: whether it may come next. Where the
  /// text may end, tokens that end a text may; after one, nothing may be asked. Valid until the
  /// next call. Throws ConfigError where a grammar asks for too much, as `accept` does.
  std::span<const int32_t> allowed();
  /// Goes on by a token. False, and nothing changes, if it may not come.
  bool accept(int64_t token);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::grammar
