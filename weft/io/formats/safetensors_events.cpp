#include "weft/io/formats/safetensors_events.h"

#include <algorithm>

#include "weft/core/json.h"
#include "weft/io/formats/header_checks.h"

namespace weft::io {

using core::fail;
using core::FormatError;
using core::quote;

namespace {

constexpr int kMaxDepth = 64;
// Where the header begins in the file, after its length.
constexpr size_t kHeaderStart = 8;
constexpr size_t kMaxDims = 64;

}  // namespace

template <class... Parts>
void SafetensorsEvents::fail_here(const Parts&... parts) const {
  fail<FormatError>(subject(), " at byte ", kHeaderStart + position_, ": ", parts...,
                    "; convert the file again");
}

std::string SafetensorsEvents::subject() const {
  switch (inside_) {
    case Inside::kNothing:
    case Inside::kHeader:
      if (expect_ != Expect::kTensor) return path_ + ": header";
      [[fallthrough]];
    case Inside::kTensor:
    case Inside::kShape:
    case Inside::kOffsets:
      return path_ + ": tensor " + quote(tensor_.name);
    case Inside::kMetadata:
      return path_ + ": __metadata__";
  }
  return path_;
}

void SafetensorsEvents::unexpected(const std::string& got) const {
  switch (expect_) {
    case Expect::kHeader:
      fail_here("expected a JSON object, got ", got);
    case Expect::kTensor:
      fail_here("expected an object, got ", got);
    case Expect::kMetadata:
      fail_here("__metadata__: expected an object of strings, got ", got);
    case Expect::kText:
      fail_here("expected a string, got ", got);
    case Expect::kDtype:
      fail_here("dtype: expected a string, got ", got);
    case Expect::kShape:
      fail_here("shape: expected a list of integers >= 0, got ", got);
    case Expect::kOffsets:
      fail_here("data_offsets: expected two integers >= 0, got ", got);
    case Expect::kUnknown:
      break;
  }
}

void SafetensorsEvents::scalar(const std::string& got) { unexpected(got); }

bool SafetensorsEvents::null() {
  // The format's own reader takes null for an absent __metadata__.
  if (expect_ != Expect::kMetadata) scalar("null");
  return true;
}

bool SafetensorsEvents::boolean(bool value) {
  scalar(value ? "true" : "false");
  return true;
}

bool SafetensorsEvents::number_integer(int64_t value) {
  scalar(std::to_string(value));
  return true;
}

bool SafetensorsEvents::number_float(double, const std::string& text) {
  scalar(quote(text));
  return true;
}

bool SafetensorsEvents::number_unsigned(uint64_t value) {
  if (inside_ == Inside::kShape) {
    if (value > INT64_MAX) fail_here("shape: ", value, " does not fit in 63 bits");
    if (tensor_.shape.size() == kMaxDims) fail_here("shape: more than ", kMaxDims, " dimensions");
    tensor_.shape.push_back(static_cast<int64_t>(value));
  } else if (inside_ == Inside::kOffsets) {
    if (offsets_.size() == 2) fail_here("data_offsets: expected two integers >= 0, got more");
    offsets_.push_back(value);
  } else {
    scalar(std::to_string(value));
  }
  return true;
}

bool SafetensorsEvents::string(std::string& value) {
  if (expect_ == Expect::kText) {
    if (!header_.metadata.emplace(metadata_key_, value).second) {
      fail_here("key ", quote(metadata_key_), " stands twice, expected once");
    }
  } else if (expect_ == Expect::kDtype) {
    const auto dtype = core::dtype_from_safetensors(value);
    if (!dtype) {
      fail_here("dtype ", quote(value),
                ", expected BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F8_E5M2, F8_E4M3, "
                "F8_E8M0, F16, BF16, F32 or F64");
    }
    tensor_.dtype = *dtype;
  } else {
    scalar("the string " + quote(value));
  }
  return true;
}

bool SafetensorsEvents::binary(nlohmann::json::binary_t&) {
  scalar("binary");
  return true;
}

void SafetensorsEvents::enter() {
  if (++skipped_depth_ > kMaxDepth) fail_here("JSON nested deeper than ", kMaxDepth, " levels");
}

bool SafetensorsEvents::start_object(size_t) {
  if (expect_ == Expect::kHeader) {
    inside_ = Inside::kHeader;
  } else if (expect_ == Expect::kMetadata) {
    inside_ = Inside::kMetadata;
  } else if (expect_ == Expect::kTensor) {
    inside_ = Inside::kTensor;
  } else {
    unexpected("an object");
    enter();
  }
  return true;
}

bool SafetensorsEvents::start_array(size_t) {
  if (skipped_depth_ == 0 && inside_ == Inside::kTensor && expect_ == Expect::kShape) {
    inside_ = Inside::kShape;
  } else if (skipped_depth_ == 0 && inside_ == Inside::kTensor && expect_ == Expect::kOffsets) {
    inside_ = Inside::kOffsets;
  } else {
    unexpected("a list");
    enter();
  }
  return true;
}

bool SafetensorsEvents::key(std::string& name) {
  if (skipped_depth_ > 0) return true;
  if (inside_ == Inside::kHeader) {
    header_key(name);
  } else if (inside_ == Inside::kMetadata) {
    metadata_key_ = name;
    expect_ = Expect::kText;
  } else {
    tensor_key(name);
  }
  return true;
}

void SafetensorsEvents::header_key(const std::string& name) {
  if (name == "__metadata__") {
    expect_ = Expect::kUnknown;
    if (has_metadata_) fail_here("__metadata__ stands twice, expected once");
    has_metadata_ = true;
    expect_ = Expect::kMetadata;
    return;
  }
  check_tensor_name(path_, name);
  tensor_ = TensorMeta{};
  tensor_.name = name;
  tensor_.file = file_index_;
  offsets_.clear();
  fields_.clear();
  expect_ = Expect::kTensor;
}

void SafetensorsEvents::tensor_key(const std::string& name) {
  if (std::find(fields_.begin(), fields_.end(), name) != fields_.end()) {
    fail_here("field ", quote(name), " stands twice, expected once");
  }
  if (fields_.size() == kMaxDims) fail_here("more than ", kMaxDims, " fields, expected 3");
  fields_.push_back(name);
  expect_ = name == "dtype"          ? Expect::kDtype
            : name == "shape"        ? Expect::kShape
            : name == "data_offsets" ? Expect::kOffsets
                                     : Expect::kUnknown;
}

bool SafetensorsEvents::end_object() {
  if (skipped_depth_ > 0) {
    --skipped_depth_;
  } else if (inside_ == Inside::kTensor) {
    finish_tensor();
    inside_ = Inside::kHeader;
  } else {
    inside_ = inside_ == Inside::kMetadata ? Inside::kHeader : Inside::kNothing;
  }
  return true;
}

bool SafetensorsEvents::end_array() {
  if (skipped_depth_ > 0) {
    --skipped_depth_;
    return true;
  }
  if (inside_ == Inside::kOffsets && offsets_.size() != 2) {
    fail_here("data_offsets: expected two integers >= 0, got ", offsets_.size());
  }
  inside_ = Inside::kTensor;
  return true;
}

void SafetensorsEvents::finish_tensor() {
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (std::find(fields_.begin(), fields_.end(), field) == fields_.end()) {
      fail_here("missing field '", field, "'");
    }
  }
  const auto bytes = tensor_bytes(tensor_.dtype, tensor_.shape);
  const std::string_view dtype = info(tensor_.dtype).name;
  if (!bytes) {
    fail_here("the size of ", dtype, " ", core::list_text(tensor_.shape),
              " does not fit in 63 bits");
  }
  if (offsets_[1] < offsets_[0]) {
    fail_here("data_offsets ", core::list_text(offsets_), " end before they begin");
  }
  if (offsets_[1] - offsets_[0] != *bytes) {
    fail_here("data_offsets ", core::list_text(offsets_), " are ", offsets_[1] - offsets_[0],
              " bytes, expected ", *bytes, " for ", dtype, " ", core::list_text(tensor_.shape));
  }
  tensor_.offset = offsets_[0];
  tensor_.num_bytes = *bytes;
  header_.tensors.push_back(std::move(tensor_));
}

bool SafetensorsEvents::parse_error(size_t position, const std::string&,
                                    const nlohmann::json::exception& error) {
  fail<FormatError>(path_, ": header at byte ", kHeaderStart + (position > 0 ? position - 1 : 0),
                    ": not valid JSON: ", core::json_error_text(error.what()),
                    "; fetch or convert the file again");
}

}  // namespace weft::io
