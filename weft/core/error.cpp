#include "weft/core/error.h"

#include <cstring>

namespace weft::core {

void fail_errno(const std::string& where, const std::string& what, int error_number) {
  fail<IoError>(where, ": ", what, ": ", std::strerror(error_number));
}

}  // namespace weft::core
