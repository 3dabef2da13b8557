#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace weft::cli {

/// A flag or argument of a verb as people read of it.
struct HelpFlag {
  /// "-n", "--max-tokens"; of an argument "MODEL" first.
  std::vector<std::string> names;
  /// What stands for its value: "INT"; empty: it takes none.
  std::string value;
  std::string about;
};

/// Flags that are shown together.
struct HelpGroup {
  std::string name;
  std::vector<HelpFlag> flags;
};

/// The flags of a verb: what most people use first, how it runs on ranks last.
std::vector<HelpGroup> help_groups(const CLI::App& app);

/// "weft chat [OPTION…] [MODEL]".
std::string usage_text(const CLI::App& app);

/// A verb as pages and scripts describe it.
struct VerbHelp {
  std::string name;
  /// One line, of the table of verbs.
  std::string summary;
  /// As usage_text has it.
  std::string usage;
  std::string about;
  std::vector<HelpGroup> groups;
};

/// All of a verb's help, at most 100 columns wide.
std::string help_text(const CLI::App& app);

/// Writes a verb's help to stdout; to a HelpCapture while there is one.
void show_help(const CLI::App& app);

/// Takes the help that is asked for while this lives, in place of stdout. One at a time.
class HelpCapture {
 public:
  HelpCapture();
  HelpCapture(const HelpCapture&) = delete;
  HelpCapture& operator=(const HelpCapture&) = delete;
  ~HelpCapture();
  /// What was shown last.
  const VerbHelp& help() const { return help_; }

 private:
  friend void show_help(const CLI::App& app);
  VerbHelp help_;
};

}  // namespace weft::cli
