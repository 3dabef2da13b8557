#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

/// libFuzzer's entry, which each *_fuzz.cpp defines and replay.cpp calls as well.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft::testing {

/// Runs one input. Whatever it is, `action` may end well or with an error of weft whose message is
/// one line of bounded length, anything else aborts. Returns whether it ended well.
bool run_input(const std::function<void()>& action);

/// Aborts with `what` on stderr unless `holds`.
void expect(bool holds, std::string_view what);

/// A file in a temporary folder of the process that holds the last input.
class InputFile {
 public:
  /// `name` chooses the reader where a format is recognized by the file's name.
  explicit InputFile(const std::string& name);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Writes another file, which stays, into the folder.
  void add(const std::string& name, std::string_view bytes) const;
  /// Replaces the content; returns the path.
  const std::string& write(std::string_view bytes) const;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace weft::testing
