#include "tests/fuzz/fuzz.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "weft/core/error.h"

namespace weft::testing {

void expect(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "fuzz: expected that " << what << std::endl;
  std::abort();
}

bool run_input(const std::function<void()>& action) {
  constexpr size_t kMaxMessage = 8000;
  try {
    action();
    return true;
  } catch (const core::Error& error) {
    const std::string_view message = error.what();
    const bool is_line = message.find('\n') == std::string_view::npos;
    expect(is_line && message.size() <= kMaxMessage && !message.empty(),
           core::join("a message is one line of at most ", kMaxMessage, " bytes, got: ", message));
    expect(std::string_view(error.type()) != "InternalError",
           core::join("no input leads to a bug of weft, got: ", message));
    return false;
  }
}

InputFile::InputFile(const std::string& name) {
  // In memory where there is such a folder: the file is written thousands of times a second.
  std::error_code error;
  const bool has_memory = std::filesystem::is_directory("/dev/shm", error);
  const std::filesystem::path root =
      has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
  folder_ = (root / "weft-fuzz-XXXXXX").string();
  expect(::mkdtemp(folder_.data()) != nullptr, "a temporary folder can be made");
  path_ = folder_ + "/" + name;
}

InputFile::~InputFile() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void InputFile::add(const std::string& name, std::string_view bytes) const {
  std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
}

const std::string& InputFile::write(std::string_view bytes) const {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  expect(file.good(), "the input can be written to " + path_);
  return path_;
}

}  // namespace weft::testing
