#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads/launch.h"
#include "load/meta_weights.h"
#include "models/tiny_model.h"
#include "models/tiny_networks.h"
#include "parallel/denoise.h"

// tensor=N in every image network: a single rank's prediction within the rounding of sums, equal
// bits on every rank and in every run, and 1/N of the split weights.
namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

using models::kNetworks;
using models::Network;

struct Ran {
  std::vector<float> prediction;
  int64_t summed = 0, messages = 0;  ///< bytes, and messages, sent for sums
};

/// A forward pass of three sequences on every rank of a plan; the ranks' predictions.
std::vector<Ran> run(const Network& n, const std::string& text, DType dtype, int64_t height = 4,
                     int64_t width = 6) {
  const Plan plan = parse_plan(text);
  const models::TinyModel whole(n.type, n.json(n.head_dim).c_str());
  const nn::TokenLayout layout = whole.spec.layout(height, width, n.frames);
  const nn::Conditioning conditioning = whole.conditioning(3, n.text);
  const parallel::Workload workload{
      .samples = 3, .grid = layout.grid(), .prefix = whole.spec.prefix(conditioning)};
  std::vector<Ran> ran(static_cast<size_t>(plan.world()));
  const auto pass = [&](comm::Communicator* world) {
    const int rank = world ? world->rank() : 0;
    const nn::Portion portion = parallel::portion_of(plan, whole.network->geometry(), rank);
    const auto network = whole.spec.make(models::NamedNoise(), portion, dtype);
    parallel::Setup setup(plan, network->geometry(), workload, world);
    nn::Conditioning mine;
    const auto rows = setup.partition.sequences(rank);
    for (const auto& [name, x] : conditioning.tensors)
      mine.tensors[name] = x.slice(0, rows.front(), rows.back() + 1).contiguous();
    const Tensor time = Tensor::from(std::vector<float>(rows.size(), 400), {std::ssize(rows)});
    const Tensor latent = setup.partition.cut(whole.latent(3, layout), rank);
    auto& [prediction, summed, messages] = ran[static_cast<size_t>(rank)];
    prediction = parallel::forward(*network, mine, time, latent, setup, {}).to_floats();
    if (!world) return;
    const auto& sent = setup.tensor_group->ledger().entries();
    summed = sent.at({"reduce", -1}).bytes;
    messages = sent.at({"reduce", -1}).messages;
  };
  if (plan.world() == 1)
    pass(nullptr);
  else
    comm::threads::run(plan.world(), std::chrono::seconds(60),
                       [&](comm::Communicator& world) { pass(&world); });
  return ran;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, length = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(double(a[i]) - double(b[i]), 2);
    length += std::pow(double(b[i]), 2);
  }
  return std::sqrt(error / length);
}

TEST(TensorParallel, EveryNetworkGivesThePredictionOfOneRank) {
  for (const Network& n : kNetworks)
    for (DType dtype : {DType::f32, DType::bf16}) {
      const auto one = run(n, "", dtype)[0].prediction;
      for (int ranks : {2, 3, 4, 8}) {
        const auto many = run(n, "tensor=" + std::to_string(ranks), dtype);
        EXPECT_LT(distance(many[0].prediction, one), dtype == DType::f32 ? 1e-5 : 3e-2)
            << n.type << " on " << ranks << " ranks";
        for (const Ran& other : many) EXPECT_EQ(other.prediction, many[0].prediction) << n.type;
      }
      const auto two = run(n, "tensor=2", dtype), again = run(n, "tensor=2", dtype);
      EXPECT_EQ(two[0].prediction, again[0].prediction) << n.type;
    }
}

TEST(TensorParallel, SendsEveryRowOnceToBeSummedAndOnceFinished) {
  for (const Network& n : kNetworks)
    for (DType dtype : {DType::f32, DType::bf16})
      for (int ranks : {2, 4}) {
        int64_t sent = 0;
        for (const Ran& rank : run(n, "tensor=" + std::to_string(ranks), dtype))
          sent += rank.summed;
        const int64_t latent = 3 * 2 * 3 * std::max<int64_t>(n.frames, 1), text = 3 * n.text;
        const int64_t channels =
            (n.sums_of_latent * latent + n.sums_of_text * text) * 12 * n.head_dim;
        EXPECT_EQ(sent, (ranks - 1) * channels * (4 + tensor::size_of(dtype))) << n.type;
      }
}

TEST(TensorParallel, GoesWithRowsThatAreSpread) {
  for (const Network& n : {kNetworks[0], kNetworks[3]}) {
    const auto two = run(n, "tensor=2", DType::f32);
    const auto spread = run(n, "data=3,tensor=2", DType::f32);
    std::vector<float> rows;
    for (size_t r = 0; r < spread.size(); r += 2) {
      EXPECT_EQ(spread[r].prediction, spread[r + 1].prediction);
      rows.insert(rows.end(), spread[r].prediction.begin(), spread[r].prediction.end());
    }
    EXPECT_EQ(rows, two[0].prediction) << n.type << ": a row does not depend on the others";
  }
}

// The sums of three sequences use four chunks, those of a single sequence only a single chunk.
TEST(TensorParallel, ChunksOfItsSumsChangeNoBit) {
  for (const Network& n : {kNetworks[0], kNetworks[3]})
    for (DType dtype : {DType::f32, DType::bf16}) {
      const auto chunks = run(n, "tensor=2", dtype, 26, 28);
      std::vector<float> whole;
      const auto alone = run(n, "data=3,tensor=2", dtype, 26, 28);
      for (size_t r = 0; r < alone.size(); r += 2)
        whole.insert(whole.end(), alone[r].prediction.begin(), alone[r].prediction.end());
      EXPECT_EQ(chunks[0].prediction, whole) << n.type;
      EXPECT_GT(chunks[0].messages, alone[0].messages) << n.type;
    }
}

TEST(TensorParallel, ARankHoldsItsPartOfWhatIsSplit) {
  for (const Network& n : kNetworks) {
    const int64_t dim = n.head_dim * 24;
    const auto spec = models::pipeline_of(n.type, {base::Json::parse(n.json(dim)), "config.json"});
    const auto weights = [&](int count) {
      tensor::Scope scope;
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      nn::Portion portion = spec.whole();
      portion.shard = {count - 1, count};
      const auto part = spec.make(load::MetaWeights(), portion, DType::bf16);
      return double(scope.memory->current(tensor::MemoryClass::weights));
    };
    const double all = weights(1), split = 2 * (all - weights(2));
    EXPECT_GT(split / all, 0.4) << n.type;
    for (int count : {3, 4, 6})
      EXPECT_NEAR(weights(count), all - split + split / count, 0.01 * all) << n.type;
  }
}

}  // namespace
}  // namespace tessera
