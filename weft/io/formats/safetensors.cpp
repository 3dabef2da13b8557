#include "weft/io/formats/safetensors.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/io/formats/byte_reader.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/formats/safetensors_events.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::quote;

namespace {

constexpr uint64_t kLengthBytes = 8;

// Walks over a text and leaves in `*position` how far the parser has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, size_t* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*position_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  size_t* position_;
};

std::string read_header_text(const core::File& file) {
  ByteReader reader(file, kLengthBytes + kMaxSafetensorsHeader);
  reader.set_subject("header length", "");
  const auto length = reader.read<uint64_t>();
  check<FormatError>(length <= kMaxSafetensorsHeader, file.path(), ": header length ", length,
                     " exceeds the format's limit of ", kMaxSafetensorsHeader,
                     " bytes; fetch or convert the file again");
  check<FormatError>(length > 0, file.path(),
                     ": header length 0, expected a JSON object; fetch or convert the file again");
  const uint64_t have = reader.remaining();
  check<FormatError>(length <= have, file.path(), ": header length ", length, " exceeds the ", have,
                     " bytes that follow: truncated: need ", length, " bytes, have ", have,
                     "; fetch or convert the file again");
  return reader.read_string(length);
}

SafetensorsHeader parse_header(const core::File& file, const std::string& text, size_t file_index) {
  core::check_json_bytes(text, file.path() + ": header");
  size_t position = 0;
  SafetensorsEvents events(file.path(), file_index, position);
  size_t unused = 0;
  nlohmann::json::sax_parse(CountingIterator(text.data(), &position),
                            CountingIterator(text.data() + text.size(), &unused), &events);
  return events.take();
}

[[noreturn]] void fail_cover(const core::File& file, const TensorMeta& tensor,
                             const TensorMeta* previous, uint64_t expected) {
  const std::string after = previous == nullptr ? "" : " after tensor " + quote(previous->name);
  fail<FormatError>(file.path(), ": tensor ", quote(tensor.name), ": data begins at ",
                    tensor.offset, tensor.offset < expected ? ", overlap" : ", hole", after,
                    ", expected ", expected, "; convert the file again");
}

// Sorted by place, each tensor must begin where the one before ended, and the last must end the
// file: then no byte has two meanings and none is hidden.
void check_coverage(const core::File& file, uint64_t data_start, SafetensorsHeader& header) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorMeta& a, const TensorMeta& b) {
                     return std::tuple(a.offset, a.num_bytes) < std::tuple(b.offset, b.num_bytes);
                   });
  const uint64_t have = file.size() - data_start;
  const TensorMeta* previous = nullptr;
  uint64_t expected = 0;
  for (const TensorMeta& tensor : header.tensors) {
    if (tensor.offset != expected) fail_cover(file, tensor, previous, expected);
    if (tensor.num_bytes > have - expected) {
      fail<FormatError>(file.path(), ": tensor ", quote(tensor.name), " at byte ",
                        data_start + expected, ": truncated: need ", tensor.num_bytes,
                        " bytes, have ", have - expected, "; fetch or convert the file again");
    }
    expected += tensor.num_bytes;
    previous = &tensor;
  }
  check<FormatError>(expected == have, file.path(), ": ", have - expected,
                     " bytes after the last tensor's end at byte ", data_start + expected,
                     ", expected none; convert the file again");
}

}  // namespace

SafetensorsHeader read_safetensors_header(const core::File& file, size_t file_index) {
  const std::string text = read_header_text(file);
  SafetensorsHeader header = parse_header(file, text, file_index);
  const uint64_t data_start = kLengthBytes + text.size();
  check_unique_names(file.path(), header.tensors);
  check_coverage(file, data_start, header);
  for (TensorMeta& tensor : header.tensors) tensor.offset += data_start;
  return header;
}

}  // namespace weft::io
