#include "weft/cli/version.h"

#include <torch/version.h>

#include <string>
#include <string_view>

#include "weft/commit.h"
#include "weft/core/error.h"
#include "weft/dist/backends/names.h"
#include "weft/version.h"

namespace weft::cli {

std::string version_text() {
  constexpr std::string_view kCommit = WEFT_COMMIT;
  std::string text = core::join("weft ", WEFT_VERSION, " (");
  if (!kCommit.empty()) text += core::join("commit ", kCommit, ", ");
  text += core::join("libtorch ", TORCH_VERSION, ", backends");
  const char* before = " ";
  for (const dist::BackendName& backend : dist::known_backends()) {
    if (!backend.is_built) continue;
    text += core::join(before, backend.name);
    before = ", ";
  }
  return text + ")\n";
}

}  // namespace weft::cli
