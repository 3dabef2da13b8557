#include "weft/io/formats/gguf_values.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/formats/gguf.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;

namespace {

[[noreturn]] void fail_type(const ByteReader& reader, const char* what, uint32_t type) {
  fail<FormatError>(reader.where(), ": ", what, " of type ", type,
                    ", expected a number, bool or string type from 0 to 12; fetch or convert the "
                    "file again");
}

bool to_bool(const ByteReader& reader, uint8_t byte) {
  if (byte > 1) {
    fail<FormatError>(reader.where(), ": bool of value ", int{byte},
                      ", expected 0 or 1; fetch or convert the file again");
  }
  return byte == 1;
}

std::string read_text(ByteReader& reader) {
  const auto length = reader.read<uint64_t>();
  if (length > GgufLimits::kMaxStringBytes) {
    fail<FormatError>(reader.where(), ": string of ", length, " bytes, expected at most ",
                      GgufLimits::kMaxStringBytes, "; fetch or convert the file again");
  }
  return reader.read_string(length);
}

// File: type in the file; Value: type that it is widened to. Read in pieces so that little more
// than the result itself is held.
template <class File, class Value>
MetaValue read_numbers(ByteReader& reader, uint64_t count) {
  reader.need_items(count, sizeof(File));
  std::vector<Value> values;
  values.reserve(count);
  std::array<File, 4096> piece;
  while (values.size() < count) {
    const auto step = std::min<uint64_t>(piece.size(), count - values.size());
    reader.read_bytes(std::as_writable_bytes(std::span(piece).first(step)));
    values.insert(values.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(step));
  }
  return values;
}

MetaValue read_bools(ByteReader& reader, uint64_t count) {
  reader.need(count);
  std::vector<bool> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(to_bool(reader, reader.read<uint8_t>()));
  return values;
}

MetaValue read_texts(ByteReader& reader, uint64_t count) {
  reader.need_items(count, sizeof(uint64_t));
  std::vector<std::string> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(read_text(reader));
  return values;
}

MetaValue read_array(ByteReader& reader) {
  const auto type = reader.read<uint32_t>();
  const auto count = reader.read<uint64_t>();
  check<FormatError>(
      type != static_cast<uint32_t>(GgufType::kArray), reader.where(),
      ": array of arrays, expected numbers, bools or strings; convert the model again");
  check<FormatError>(count <= GgufLimits::kMaxArrayItems, reader.where(), ": array of ", count,
                     " items, expected at most ", GgufLimits::kMaxArrayItems,
                     "; fetch or convert the file again");
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return read_numbers<uint8_t, uint64_t>(reader, count);
    case GgufType::kI8:
      return read_numbers<int8_t, int64_t>(reader, count);
    case GgufType::kU16:
      return read_numbers<uint16_t, uint64_t>(reader, count);
    case GgufType::kI16:
      return read_numbers<int16_t, int64_t>(reader, count);
    case GgufType::kU32:
      return read_numbers<uint32_t, uint64_t>(reader, count);
    case GgufType::kI32:
      return read_numbers<int32_t, int64_t>(reader, count);
    case GgufType::kF32:
      return read_numbers<float, double>(reader, count);
    case GgufType::kBool:
      return read_bools(reader, count);
    case GgufType::kString:
      return read_texts(reader, count);
    case GgufType::kU64:
      return read_numbers<uint64_t, uint64_t>(reader, count);
    case GgufType::kI64:
      return read_numbers<int64_t, int64_t>(reader, count);
    case GgufType::kF64:
      return read_numbers<double, double>(reader, count);
    case GgufType::kArray:
      break;
  }
  fail_type(reader, "array", type);
}

}  // namespace

MetaValue read_gguf_value(ByteReader& reader, uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kU8:
      return uint64_t{reader.read<uint8_t>()};
    case GgufType::kI8:
      return int64_t{reader.read<int8_t>()};
    case GgufType::kU16:
      return uint64_t{reader.read<uint16_t>()};
    case GgufType::kI16:
      return int64_t{reader.read<int16_t>()};
    case GgufType::kU32:
      return uint64_t{reader.read<uint32_t>()};
    case GgufType::kI32:
      return int64_t{reader.read<int32_t>()};
    case GgufType::kF32:
      return double{reader.read<float>()};
    case GgufType::kBool:
      return to_bool(reader, reader.read<uint8_t>());
    case GgufType::kString:
      return read_text(reader);
    case GgufType::kArray:
      return read_array(reader);
    case GgufType::kU64:
      return reader.read<uint64_t>();
    case GgufType::kI64:
      return reader.read<int64_t>();
    case GgufType::kF64:
      return reader.read<double>();
  }
  fail_type(reader, "value", type);
}

}  // namespace weft::io
