#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/formats/safetensors.h"

namespace weft::io {

/// Receives the events of a safetensors header's JSON and builds the header from them directly, so
/// that a header of millions of tensors needs no tree of JSON values. Offsets of its tensors are
/// still relative to the data. Throws FormatError from within an event.
class SafetensorsEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `position` is where the parser stands in the header, for messages.
  SafetensorsEvents(const std::string& path, size_t file_index, const size_t& position)
      : path_(path), file_index_(file_index), position_(position) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(int64_t value) override;
  bool number_unsigned(uint64_t value) override;
  bool number_float(double value, const std::string& text) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t& value) override;
  bool start_object(size_t size) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(size_t size) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) override;

 private:
  // What the next value is.
  enum class Expect { kHeader, kTensor, kMetadata, kText, kDtype, kShape, kOffsets, kUnknown };
  // What the parser is inside of.
  enum class Inside { kNothing, kHeader, kTensor, kMetadata, kShape, kOffsets };

  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const;
  // Fails unless a value of kind `got` may be skipped here.
  void unexpected(const std::string& got) const;
  void scalar(const std::string& got);
  std::string subject() const;
  void header_key(const std::string& name);
  void tensor_key(const std::string& name);
  void finish_tensor();
  void enter();

  const std::string& path_;
  size_t file_index_;
  const size_t& position_;
  Inside inside_ = Inside::kNothing;
  Expect expect_ = Expect::kHeader;
  // Open brackets of an unknown field's value, whose contents don't matter.
  int skipped_depth_ = 0;
  bool has_metadata_ = false;
  std::string metadata_key_;
  TensorMeta tensor_;
  std::vector<uint64_t> offsets_;
  std::vector<std::string> fields_;
  SafetensorsHeader header_;
};

}  // namespace weft::io
