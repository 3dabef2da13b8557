#include "weft/cli/program.h"
#include "weft/cli/tensor_verbs.h"
#include "weft/core/process_end.h"
#include "weft/core/terminal/standard_streams.h"

int main(int argc, char** argv) {
  weft::core::open_standard_streams();
  weft::core::end_without_destructors();
  return weft::cli::run_program({argv + 1, argv + argc}, weft::cli::run_tensor_verb);
}
