// A Llama block whose seven linear layers are cut over the ranks.
#include "tests/nn/linear_cases.h"
#include "weft/dist/launch/status_page.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/attention/rope.h"
#include "weft/ops/collectives.h"
#include "weft/shard/heads.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;

// B batch, T tokens, D width, N heads, K kv heads, H head dim, F ffn width; n, k, f: a rank's part.
constexpr int64_t kN = 6, kK = 2, kH = 4, kD = 10, kF = 22, kT = 5;

Linear bias_free(int64_t in, int64_t out, uint64_t seed) {
  return Linear(std::make_shared<DenseLinearImpl>(seeded({out, in}, seed), at::Tensor(), true));
}

struct Block : torch::nn::Module {
  Block() {
    const auto add = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, bias_free(in, out, seed_++));
    };
    wq = add("wq", kD, kN * kH);
    wk = add("wk", kD, kK * kH);
    wv = add("wv", kD, kK * kH);
    wo = add("wo", kN * kH, kD);
    w1 = add("w1", kD, kF);
    w3 = add("w3", kD, kF);
    w2 = add("w2", kF, kD);
  }
  void shard(const Group& ranks) {
    group = ranks;
    const auto heads = shard::head_layouts(kN, kK, kH, group.size());
    wq->shard(ShardKind::kAllToSharded, group, heads.query);
    wk->shard(ShardKind::kAllToSharded, group, heads.kv);
    wv->shard(ShardKind::kAllToSharded, group, heads.kv);
    wo->shard(ShardKind::kShardedToAll, group, heads.query);
    w1->shard(ShardKind::kAllToSharded, group);
    w3->shard(ShardKind::kAllToSharded, group);
    w2->shard(ShardKind::kShardedToAll, group);
  }
  at::Tensor forward(const at::Tensor& x_BTD) {
    const Rope rope(kH, 10000, kT);
    const auto kv_of_head = shard::shard_heads(kN, kK, group.size(), group.rank()).kv_of_head;
    const auto heads = [](const at::Tensor& x) { return x.unflatten(-1, {-1, kH}); };
    const at::Tensor in_BTD = ops::mp_copy(x_BTD, group);
    const at::Tensor q_BnTH = rope.apply(heads(wq->forward(in_BTD)), 0).transpose(1, 2);
    const at::Tensor k_BkTH = rope.apply(heads(wk->forward(in_BTD)), 0).transpose(1, 2);
    const at::Tensor v_BkTH = heads(wv->forward(in_BTD)).transpose(1, 2);
    const at::Tensor h_BTD =
        x_BTD + wo->forward(grouped_query_attention(q_BnTH, k_BkTH, v_BkTH, {kv_of_head}));
    const at::Tensor ffn_BTD = ops::mp_copy(h_BTD, group);
    return h_BTD + w2->forward(at::silu(w1->forward(ffn_BTD)) * w3->forward(ffn_BTD));
  }
  std::vector<std::pair<std::string, Linear*>> layers() {
    return {{"wq", &wq}, {"wk", &wk}, {"wv", &wv}, {"wo", &wo},
            {"w1", &w1}, {"w3", &w3}, {"w2", &w2}};
  }

  Group group;
  Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr}, w1{nullptr}, w3{nullptr}, w2{nullptr};

 private:
  uint64_t seed_ = 1;
};

TEST(LlamaBlock, EqualsTheWholeForwardAndEveryGradient) {
  on_ranks(
      [](const Group& group) {
        Block whole, sharded;
        sharded.shard(group);
        const at::Tensor x = leaf(seeded({2, kT, kD}, 20)), x_rank = leaf(x);
        const at::Tensor grad = seeded({2, kT, kD}, 21);
        const at::Tensor y = whole.forward(x), y_rank = sharded.forward(x_rank);
        expect_close(y_rank, y, "forward", 1e-6);
        y.backward(grad);
        y_rank.backward(grad);
        expect_close(x_rank.grad(), x.grad(), "gradient of the input", 1e-6);
        const auto expected = whole.layers(), found = sharded.layers();
        for (size_t i = 0; i < expected.size(); ++i) {
          SCOPED_TRACE(expected[i].first);
          const auto& part = dynamic_cast<ParallelLinearImpl&>(*(*found[i].second)->layer());
          expect_gradients_of(*part.inner(), *(*expected[i].second)->inner(), *part.cut(), 1e-6);
        }
      },
      {1, 2, 3, 4, 6});
}

// The number of the operation that this rank was in last, in its group.
uint64_t operations() { return dist::own_status().operation.load() & ((1ULL << 40) - 1); }

std::string last_operation() { return dist::describe_operation(dist::own_status()); }

TEST(LlamaBlock, TrainsWithTwoAllReducesForwardAndTwoBackward) {
  on_ranks(
      [](const Group& group) {
        Block block;
        block.shard(group);
        const at::Tensor x = leaf(seeded({2, kT, kD}, 20));
        group.barrier();
        const uint64_t start = operations();
        const at::Tensor y = block.forward(x);
        EXPECT_EQ(operations() - start, 2) << "forward";
        EXPECT_NE(last_operation().find("all_reduce"), std::string::npos) << last_operation();
        const uint64_t middle = operations();
        y.sum().backward();
        EXPECT_EQ(operations() - middle, 2) << "backward";
        EXPECT_NE(last_operation().find("all_reduce"), std::string::npos) << last_operation();
      },
      {2});
}

}  // namespace
}  // namespace weft::nn
