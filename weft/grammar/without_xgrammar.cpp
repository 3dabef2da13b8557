// Takes the place of with_xgrammar.cpp in a build without it.
#include "weft/core/error.h"
#include "weft/grammar/grammar.h"

namespace weft::grammar {

struct Grammar::Impl {};
struct Compiler::Impl {};
struct Matcher::Impl {};

bool is_available() { return false; }

Grammar::Grammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;

Compiler::Compiler(text::Tokenizer /*tokenizer*/, int64_t /*vocab_size*/) {}
Compiler::~Compiler() = default;
std::shared_ptr<const Grammar> Compiler::compile(const Source& /*source*/) {
  core::fail<core::ConfigError>(
      "grammar: this build of weft has none, expected one with xgrammar; run ./start setup and "
      "build again");
}

Matcher::Matcher(std::shared_ptr<const Grammar> /*grammar*/) {}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
std::span<const int32_t> Matcher::allowed() { return {}; }
bool Matcher::accept(int64_t /*token*/) { return false; }

}  // namespace weft::grammar
