// Layers with a state against torch's own operations, whole, in pieces and cut over ranks.
#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/nn/recurrent/short_convolution.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

constexpr int64_t kChannels = 10, kTaps = 4;

shard::Layout channels(int64_t n) {
  return shard::make_layout({0, {}, 1}, kChannels, n, "channels");
}

at::Tensor own_slice(const at::Tensor& whole, const shard::Layout& layout, int64_t rank,
                     int64_t dim) {
  const shard::Range range = layout.of(rank).front();
  return whole.narrow(dim, range.start, range.length);
}

// By torch's convolution, with documents one by one.
at::Tensor convolved(const at::Tensor& x_BTc, const at::Tensor& taps) {
  const at::Tensor padded = at::pad(x_BTc.transpose(1, 2), {kTaps - 1, 0});
  return at::conv1d(padded, taps, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                    x_BTc.size(2))
      .transpose(1, 2);
}

TEST(ShortConvolution, GivesTorchsConvolutionAndItsGradientsOnAnyRanks) {
  on_ranks([](const Group& group) {
    const at::Tensor x = leaf(seeded({2, 7, kChannels}, 1)),
                     taps = leaf(seeded({kChannels, 1, kTaps}, 2));
    const at::Tensor y = convolved(x, taps), weights = seeded({2, 7, kChannels}, 3);
    (y * weights).sum().backward();
    const shard::Layout layout = channels(group.size());
    const auto own = [&](const at::Tensor& whole, int64_t dim) {
      return own_slice(whole.detach(), layout, group.rank(), dim);
    };
    ShortConvolution layer(own(taps, 0).clone(), layout, true);
    const at::Tensor own_x = leaf(own(x, 2));
    const at::Tensor own_y = layer->forward(own_x);
    expect_close(own_y, own(y, 2), "output", 1e-12);
    (own_y * own(weights, 2)).sum().backward();
    expect_close(own_x.grad(), own(x.grad(), 2), "input's gradient", 1e-12);
    const auto infos = describe_parameters(*layer);
    ASSERT_EQ(infos.size(), 1U);
    EXPECT_EQ(infos[0].name, "weight");
    EXPECT_EQ(infos[0].sizes, (std::vector<int64_t>{kChannels, 1, kTaps}));
    expect_close(infos[0].tensor.grad(), own(taps.grad(), 0), "taps' gradient", 1e-12);
  });
}

TEST(ShortConvolution, SeesNothingOfOtherDocuments) {
  const at::Tensor x = seeded({1, 9, kChannels}, 4), taps = seeded({kChannels, 1, kTaps}, 5);
  ShortConvolution layer(taps, channels(1));
  const at::Tensor documents = at::tensor({0, 0, 1, 1, 1, 1, 1, 2, 3}, at::kLong).unsqueeze(0);
  const at::Tensor y = layer->forward(x, documents);
  for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 2}, {2, 5}, {7, 1}, {8, 1}}) {
    expect_close(y.narrow(1, start, length), convolved(x.narrow(1, start, length), taps),
                 core::join("document at ", start), 1e-12);
  }
  expect_close(layer->forward(x.narrow(1, 0, 2), documents.narrow(1, 0, 2)),
               convolved(x.narrow(1, 0, 2), taps), "fewer tokens than taps", 1e-12);
}

TEST(ShortConvolution, GoesOnFromItsState) {
  const at::Tensor x = seeded({3, 12, kChannels}, 6, at::kFloat);
  const at::Tensor taps = seeded({kChannels, 1, kTaps}, 7, at::kFloat);
  ShortConvolution layer(taps, channels(1));
  const at::Tensor whole = layer->forward(x);
  const at::Tensor state = at::zeros({3, layer->num_past(), kChannels});
  int64_t start = 0;
  for (const int64_t tokens : {2, 1, 1, 5, 3}) {
    const at::Tensor part = layer->forward(x.narrow(1, start, tokens), {}, state);
    EXPECT_TRUE(at::equal(part, whole.narrow(1, start, tokens))) << start;
    start += tokens;
  }
}

TEST(ShortConvolution, RefusesTapsOfAnotherShape) {
  EXPECT_EQ(error_text([] {
              ShortConvolution(at::zeros({4, 3}), channels(1));
            }),
            "ShapeError: nn.ShortConvolution: weight [4, 3], expected [channels, 1, taps]");
}

}  // namespace
}  // namespace weft::nn
