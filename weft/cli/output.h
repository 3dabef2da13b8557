#pragma once

#include <string>
#include <vector>

#include "weft/cli/options.h"
#include "weft/core/files/atomic_folder.h"

namespace weft::cli {

/// Files and folders that a verb reads; empty names are none.
using Inputs = std::vector<std::string>;

/// What a verb reads by these flags of a model, which is at `path`.
Inputs model_inputs(const ModelOptions& options, const std::string& path);

/// A folder that holds a model and nothing else.
core::ReplaceableFolder model_folder();

/// A folder of files with these names alone, of which the first marks it.
core::ReplaceableFolder folder_of_files(const std::vector<std::string>& names);

/// Throws ConfigError if a verb may not write a folder of this kind to `output`: there is one
/// already and it is not to be replaced, it is no such folder, or it is or holds one of `inputs`.
void check_new_folder(const OutputOptions& output, const core::ReplaceableFolder& kind,
                      const Inputs& inputs);

/// Throws ConfigError if a verb may not write the file `out`: there is one already and `force` is
/// not given, it is one of `inputs` (by another name, too), or lies in one that is a folder.
void check_new_file(const std::string& out, bool force, const Inputs& inputs);

/// Throws ConfigError if `out`, which need not be there, lies in the folder (empty: here).
void check_lies_elsewhere(const std::string& out, const std::string& folder);

}  // namespace weft::cli
