#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"

namespace weft::test {

/// A key's value in the bytes of a GGUF file.
struct Value {
  io::GgufType type;
  std::string bytes;
};
using Keys = std::map<std::string, Value>;

inline Value integer(uint32_t value) { return {io::GgufType::kU32, testing::raw(value)}; }
inline Value real(float value) { return {io::GgufType::kF32, testing::raw(value)}; }
inline Value text(const std::string& value) {
  return {io::GgufType::kString, testing::gguf_text(value)};
}

/// A file "model.gguf" with these keys and tensors.
inline std::shared_ptr<const io::TensorFile> write_gguf(const testing::TempDir& dir,
                                                        const Keys& keys,
                                                        std::vector<testing::GgufTensor> tensors) {
  testing::GgufBuilder builder;
  for (const auto& [key, value] : keys) {
    builder.keys.push_back(testing::gguf_key(key, value.type, value.bytes));
  }
  builder.tensors = std::move(tensors);
  return io::TensorFile::open(dir.write("model.gguf", builder.build()));
}

}  // namespace weft::test
