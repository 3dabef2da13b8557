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

/// All of a verb's help, at most 100 columns wide.
std::string help_text(const CLI::App& app);

}  // namespace weft::cli
