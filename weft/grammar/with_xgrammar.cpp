// The only file that sees xgrammar.
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/terminal/printable.h"
#include "weft/grammar/grammar.h"
#include "weft/grammar/schema.h"
#include "weft/grammar/source_text.h"

namespace xgrammar {

// What xgrammar calls in place of writing to stderr (XGRAMMAR_LOG_CUSTOMIZE). It warns of what it
// leaves out, while a grammar is compiled: the first warning of a thread is kept until then.
// NOLINTNEXTLINE(readability-identifier-naming)
[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
// NOLINTNEXTLINE(readability-identifier-naming)
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

namespace {

thread_local std::string first_warning;

}  // namespace

void LogFatalImpl(const std::string& /*file*/, int /*lineno*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int level,
                    const std::string& message) {
  constexpr int kWarning = 2;
  // Schemas are taken for apart only where weft has seen that they are (schema_apart.h).
  const bool is_known =
      message.find("oneOf with overlapping or non-provably-disjoint branches") != std::string::npos;
  if (level >= kWarning && !is_known && first_warning.empty()) first_warning = message;
}

}  // namespace xgrammar

namespace weft::grammar {

// What texts of a source may be made of.
struct TokensOfSource {
  // Special tokens that a structural tag names: the members "token" of its formats.
  std::set<int64_t> named = {};
  // What holds is JSON, or has no control characters either.
  bool is_json = true;

  bool operator==(const TokensOfSource& other) const = default;
};

namespace {

constexpr size_t kMostKept = 32;
constexpr size_t kMostMessageBytes = 300;
constexpr int kMostRecursion = 500;

bool has_control(std::string_view bytes) {
  return std::ranges::any_of(bytes, [](unsigned char c) { return c < 0x20 && c != '\n'; });
}

void add_format(const nlohmann::json& format, TokensOfSource& tokens) {
  if (!format.is_structured()) return;
  const auto type = format.is_object() ? format.value("type", nlohmann::json()) : nlohmann::json();
  if (type == "token" && format.contains("token") && format["token"].is_number_integer()) {
    tokens.named.insert(format["token"].get<int64_t>());
  }
  if (type == "grammar") tokens.is_json = false;
  for (const auto& [name, child] : format.items()) {
    if (name != "json_schema") add_format(child, tokens);
  }
}

TokensOfSource tokens_of(const Source& source) {
  TokensOfSource tokens;
  if (source.form == Form::kRegex || source.form == Form::kEbnf) tokens.is_json = false;
  if (source.form != Form::kStructuralTag) return tokens;
  add_format(nlohmann::json::parse(source.text, nullptr, false), tokens);
  return tokens;
}

// Gives special tokens texts that stand in no grammar, so that xgrammar takes them where a format
// names them and nowhere else: 0xFF is in no character.
void name_special(const std::set<int64_t>& tokens, std::vector<std::string>& texts) {
  for (const int64_t token : tokens) {
    if (token < 0 || token >= std::ssize(texts)) continue;
    std::string& text = texts[static_cast<size_t>(token)];
    if (text.empty()) text = core::join("\xFF", token);
  }
}

// Texts of tokens; empty for those that only a grammar's end allows, or nothing does. In JSON these
// are also those with control characters other than line breaks: xgrammar lets them into strings of
// bounded length, where JSON has none.
std::vector<std::string> texts_of(const text::Tokenizer& tokenizer, int64_t vocab_size,
                                  bool is_json) {
  std::vector<std::string> texts(static_cast<size_t>(vocab_size));
  const size_t known = std::min(texts.size(), tokenizer.vocab_size());
  for (size_t i = 0; i < known; ++i) {
    const auto id = static_cast<text::TokenId>(i);
    const bool is_left_out = tokenizer.is_special(id) || tokenizer.is_end(id) ||
                             (is_json && has_control(tokenizer.bytes(id)));
    if (!is_left_out) texts[i] = tokenizer.bytes(id);
  }
  return texts;
}

std::vector<int32_t> ends_of(const text::Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<int32_t> ends;
  const auto known = std::min(vocab_size, static_cast<int64_t>(tokenizer.vocab_size()));
  for (text::TokenId id = 0; id < known; ++id) {
    if (tokenizer.is_end(id)) ends.push_back(id);
  }
  return ends;
}

xgrammar::Grammar parse_tag(const std::string& text) {
  auto parsed = xgrammar::Grammar::FromStructuralTag(text);
  if (const auto* grammar = std::get_if<xgrammar::Grammar>(&parsed)) return *grammar;
  std::visit([](const auto& error) { throw std::runtime_error(error.what()); },
             std::get<xgrammar::StructuralTagError>(parsed));
  return xgrammar::Grammar(xgrammar::NullObj{});
}

xgrammar::Grammar from_schema(const std::string& schema, bool is_strict) {
  return xgrammar::Grammar::FromJSONSchema(schema, true, std::nullopt, std::nullopt, is_strict,
                                           kMostSpaces);
}

// xgrammar keeps quotes and backslashes out of what a pattern allows only where it makes an
// automaton of the pattern. Of others it makes rules that may end a text of JSON too early.
void check_patterns(const std::vector<SchemaPattern>& patterns) {
  for (const SchemaPattern& pattern : patterns) {
    check_regex(pattern.text);
    const std::string schema = core::dump_json({{"type", "string"}, {"pattern", pattern.text}});
    const bool is_automaton =
        from_schema(schema, true).ToString().find("\nroot_1 ::= Regex(") != std::string::npos;
    core::check<core::ConfigError>(is_automaton, pattern.where, " ", core::quote(pattern.text),
                                   " is not supported, expected printable ASCII and texts "
                                   "without quotes and backslashes");
  }
}

xgrammar::Grammar parse(const Source& source) {
  switch (source.form) {
    case Form::kJsonObject:
      return from_schema(R"({"type": "object"})", false);
    case Form::kJsonSchema:
      check_patterns(check_schema(source.text));
      return from_schema(source.text, true);
    case Form::kRegex:
      check_regex(source.text);
      return xgrammar::Grammar::FromRegex(source.text);
    case Form::kEbnf:
      check_gbnf(source.text);
      return xgrammar::Grammar::FromEBNF(source.text);
    case Form::kStructuralTag:
      check_patterns(check_tag(source.text));
      return parse_tag(source.text);
  }
  core::fail<core::InternalError>("grammar: unknown form");
}

std::string on_one_line(const std::string& message) {
  return core::printable(message.substr(0, kMostMessageBytes));
}

}  // namespace

struct Grammar::Impl {
  xgrammar::CompiledGrammar compiled;
  int64_t vocab_size;
};

struct Compiler::Impl {
  text::Tokenizer tokenizer;
  int64_t vocab_size;
  std::mutex mutex = {};
  /// Of any text, of JSON, and of the last structural tag that names tokens, which are `of_tag`.
  std::array<std::optional<xgrammar::TokenizerInfo>, 3> infos = {};
  TokensOfSource of_tag = {};
  /// The last ones, the newest first.
  std::deque<std::pair<Source, std::shared_ptr<const Grammar>>> kept = {};

  const xgrammar::TokenizerInfo& tokenizer_info(const Source& source) {
    const TokensOfSource tokens = tokens_of(source);
    const bool has_named = !tokens.named.empty();
    auto& info = infos[has_named ? 2 : (tokens.is_json ? 1 : 0)];
    if (has_named && tokens != of_tag) info.reset();
    if (!info) {
      std::vector<std::string> texts = texts_of(tokenizer, vocab_size, tokens.is_json);
      name_special(tokens.named, texts);
      if (has_named) of_tag = tokens;
      info.emplace(texts, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                   ends_of(tokenizer, vocab_size));
    }
    return *info;
  }

  std::shared_ptr<const Grammar> compile(const Source& source) {
    xgrammar::SetMaxRecursionDepth(kMostRecursion);
    xgrammar::first_warning.clear();
    const xgrammar::Grammar parsed = parse(source);
    core::check<core::ConfigError>(xgrammar::first_warning.empty(),
                                   "grammar: ", on_one_line(xgrammar::first_warning),
                                   "; what would be left out is refused");
    xgrammar::GrammarCompiler compiler(tokenizer_info(source), 1, false);
    return std::make_shared<Grammar>(std::make_unique<Grammar::Impl>(
        Grammar::Impl{compiler.CompileGrammar(parsed), vocab_size}));
  }
};

bool is_available() { return true; }

namespace {

// Of rules that only refer to one another there is no text, which would be noticed when one is
// drawn.
void check_beginning(const std::shared_ptr<const Grammar>& grammar, int64_t vocab_size) {
  constexpr int64_t kWordBits = 32;
  Matcher matcher(grammar);
  const std::span<const int32_t> allowed = matcher.allowed();
  bool is_any = false;
  for (int64_t id = 0; id < vocab_size && !is_any; ++id) {
    const auto word = static_cast<uint32_t>(allowed[static_cast<size_t>(id / kWordBits)]);
    is_any = (word >> (id % kWordBits) & 1) != 0;
  }
  core::check<core::ConfigError>(is_any,
                                 "grammar: no text begins it, expected one that can be written; "
                                 "look for rules that refer to themselves alone");
}

}  // namespace

Grammar::Grammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;

Compiler::Compiler(text::Tokenizer tokenizer, int64_t vocab_size)
    : impl_(new Impl{std::move(tokenizer), vocab_size}) {}
Compiler::~Compiler() = default;

std::shared_ptr<const Grammar> Compiler::compile(const Source& source) {
  core::check<core::ConfigError>(source.text.size() <= kMostSourceBytes,
                                 "grammar: ", source.text.size(), " bytes, expected at most ",
                                 kMostSourceBytes);
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [known, grammar] : impl_->kept) {
    if (known == source) return grammar;
  }
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = impl_->compile(source);
    check_beginning(grammar, impl_->vocab_size);
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    core::fail<core::ConfigError>("grammar: ", on_one_line(error.what()));
  }
  impl_->kept.emplace_front(source, grammar);
  if (impl_->kept.size() > kMostKept) impl_->kept.pop_back();
  return grammar;
}

struct Matcher::Impl {
  std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher{grammar->impl().compiled};
  std::vector<int32_t> mask = std::vector<int32_t>(
      static_cast<size_t>(xgrammar::GetBitmaskSize(static_cast<int>(grammar->impl().vocab_size))));
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar)
    : impl_(std::make_unique<Impl>(Impl{std::move(grammar)})) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

std::span<const int32_t> Matcher::allowed() {
  auto size = static_cast<int64_t>(impl_->mask.size());
  DLTensor mask = {};
  mask.data = impl_->mask.data();
  mask.device = {kDLCPU, 0};
  mask.ndim = 1;
  mask.dtype = xgrammar::GetBitmaskDLType();
  mask.shape = &size;
  try {
    // False: all may come. The mask says so, too.
    impl_->matcher.FillNextTokenBitmask(&mask);
  } catch (const std::exception& error) {
    core::fail<core::ConfigError>("grammar: ", on_one_line(error.what()));
  }
  return impl_->mask;
}

bool Matcher::accept(int64_t token) {
  try {
    return impl_->matcher.AcceptToken(static_cast<int>(token));
  } catch (const std::exception& error) {
    core::fail<core::ConfigError>("grammar: ", on_one_line(error.what()));
  }
}

}  // namespace weft::grammar
