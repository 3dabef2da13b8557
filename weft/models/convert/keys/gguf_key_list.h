#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/io/formats/write_gguf.h"

namespace weft::models {

/// The keys of a GGUF file in the making.
class GgufKeyList {
 public:
  explicit GgufKeyList(std::string architecture) : architecture_(std::move(architecture)) {}

  void text(const std::string& name, const std::string& value) {
    list_.push_back({name, io::GgufType::kString, value});
  }
  void number(const std::string& name, int64_t value) {
    list_.push_back({name, io::GgufType::kU32, value});
  }
  void real(const std::string& name, double value) {
    list_.push_back({name, io::GgufType::kF32, value});
  }
  void flag(const std::string& name, bool value) {
    list_.push_back({name, io::GgufType::kBool, value});
  }
  void add(io::GgufKey key) { list_.push_back(std::move(key)); }
  /// A key of the architecture: "llama.<name>".
  std::string own(const std::string& name) const { return architecture_ + "." + name; }
  const std::string& architecture() const { return architecture_; }
  std::vector<io::GgufKey> take() { return std::move(list_); }

 private:
  std::string architecture_;
  std::vector<io::GgufKey> list_;
};

}  // namespace weft::models
