#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/quant/quant_cases.h"
#include "weft/quant/kernels/row_loops.h"
#include "weft/quant/kernels/select.h"
#include "weft/quant/matmul.h"
#include "weft/quant/view.h"

namespace weft::quant::kernels {
namespace {

using test::Format;
using test::random_affine;
using test::reference_values;

struct Baseline {};

/// Memory that ends where reading further ends the process.
class GuardedMemory {
 public:
  explicit GuardedMemory(const at::Tensor& contents) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = contents.nbytes();
    size_ = (bytes + page - 1) / page * page + page;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    auto* end = static_cast<std::byte*>(memory_) + size_ - page;
    EXPECT_EQ(mprotect(end, page, PROT_NONE), 0);
    std::memcpy(end - bytes, contents.const_data_ptr(), bytes);
    tensor_ = at::from_blob(end - bytes, contents.sizes(), contents.options());
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(memory_, size_); }

  const at::Tensor& tensor() const { return tensor_; }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
  at::Tensor tensor_;
};

template <class Action>
void for_each_format(const Action& action) {
  for (const Kernel* kernel : all_kernels()) {
    if (!kernel->runs_here()) continue;
    for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
      for (const int64_t group : {8, 16, 32, 64}) {
        const Format format{bits, group, at::kHalf, bits == 6};
        SCOPED_TRACE(std::string(kernel->name) + ", " + format.text());
        action(*kernel, format);
      }
    }
  }
}

TEST(RowLoops, SpreadCodesEqualsTheReference) {
  const std::vector<uint8_t> packed = {0x9C, 0x5A, 0xE1, 0x37, 0x0F, 0xC2};
  const auto expect_spread = [&]<int kBits>() {
    const uint64_t eight =
        spread_codes<Baseline, kBits>(load_eight_codes<Baseline, kBits>(packed.data()));
    for (int k = 0; k < 8; ++k) {
      EXPECT_EQ(eight >> (8 * k) & 0xFF, reference::code_at(packed, kBits, k))
          << kBits << ", " << k;
    }
  };
  expect_spread.operator()<2>();
  expect_spread.operator()<3>();
  expect_spread.operator()<4>();
  expect_spread.operator()<5>();
  expect_spread.operator()<6>();
}

TEST(RowLoops, EveryKernelDequantizesToTheBitsOfTheReference) {
  at::manual_seed(17);
  for_each_format([](const Kernel& kernel, const Format& format) {
    const auto w = random_affine(format, 5, 192);
    const auto view = view_of(w);
    const auto values = at::empty({5, 192});
    std::vector<std::byte> scratch(static_cast<size_t>(scratch_bytes(view)));
    kernel.dequantize(view, {values.mutable_data_ptr<float>(), 192, {0, 5}}, scratch.data());
    EXPECT_TRUE(at::equal(values, reference_values(w)));
  });
}

/// Multiplies with weights that end where reading further ends the process.
template <class Matrix>
void expect_reads_nothing_beyond(const Kernel& kernel, Matrix w) {
  const GuardedMemory packed(w.packed);
  const GuardedMemory scales(w.scales);
  w.packed = packed.tensor();
  w.scales = scales.tensor();
  for (const int64_t tokens : {1, 12}) {
    const auto y = matmul_on(kernel, at::ones({tokens, w.in_features()}), w);
    EXPECT_TRUE(at::allclose(y[0], reference_values(w).sum(1), 1e-4, 1e-4));
  }
}

TEST(RowLoops, ReadNothingBeyondTheWeights) {
  at::manual_seed(18);
  for_each_format([](const Kernel& kernel, const Format& format) {
    expect_reads_nothing_beyond(kernel, random_affine(format, 5, 64));
  });
}

TEST(RowLoops, ReadNothingBeyondMicroscaledWeights) {
  at::manual_seed(19);
  test::for_each_kernel([](const Kernel& kernel) {
    for (const Mode mode : test::kMicroscaledModes) {
      for (const int64_t group : {32, 16, 8}) {
        if (group > mode_info(mode).group_size) continue;
        expect_reads_nothing_beyond(kernel, test::random_microscaled(mode, 5, 96, group));
      }
    }
  });
}

}  // namespace
}  // namespace weft::quant::kernels
