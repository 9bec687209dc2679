#include "nn/moe/expert_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using namespace random_bank;
using Reads = std::vector<std::pair<int, int64_t>>;

constexpr int kExperts = 8;

// Layers of experts in memory, as source of a cache.
struct Layers {
  explicit Layers(int count) {
    for (int site = 0; site < count; ++site)
      all.push_back(bank(kExperts, 100 * uint32_t(site) + 1, DType::f32));
  }
  ReadExpert reader() {
    return [this](int site, int64_t expert) {
      reads.emplace_back(site, expert);
      return all.at(static_cast<size_t>(site)).routed->at(static_cast<size_t>(expert));
    };
  }
  Reads taken() { return std::exchange(reads, {}); }

  std::vector<ExpertWeights> all;
  Reads reads;
};

// Token i of a sequence goes to the i-th of these.
std::vector<ops::Expert> ask(ExpertCache& cache, int site, const std::vector<int32_t>& experts,
                             int sequence = 0) {
  const auto count = static_cast<int64_t>(experts.size());
  return cache.bank(site, kExperts, {{sequence, {0, count}}},
                    Tensor::from(std::span<const int32_t>(experts), {count, 1}));
}

TEST(ExpertCache, ReadsWhatIsNotThereAndTheOldestLeaves) {
  Layers layers(2);
  ExpertCache cache(3, layers.reader());
  const auto some = ask(cache, 0, {5, -1, 2});
  for (int64_t e = 0; e < kExperts; ++e)
    EXPECT_EQ(some[size_t(e)].up != nullptr, e == 2 || e == 5) << e;
  EXPECT_EQ(layers.taken(), (Reads{{0, 2}, {0, 5}}));
  ask(cache, 1, {5});
  ask(cache, 0, {2});  // now 0:5 is the oldest
  EXPECT_EQ(layers.taken(), (Reads{{1, 5}}));
  ask(cache, 1, {6});
  EXPECT_EQ(cache.size(), 3);
  ask(cache, 0, {2});
  ask(cache, 1, {5, 6});
  EXPECT_EQ(layers.taken(), (Reads{{1, 6}}));
  ask(cache, 0, {5});
  EXPECT_EQ(layers.taken(), (Reads{{0, 5}}));
  EXPECT_EQ(cache.use().hits, 4);
  EXPECT_EQ(cache.use().misses, 5);
}

TEST(ExpertCache, TheCoresetOfABlockStaysUntilTheBlockEnds) {
  Layers layers(1);
  ExpertCache cache(3, layers.reader());
  cache.begin_pass({{0, {{0, 8}, {1, 2}}}});
  ask(cache, 0, {7, 1});  // token 1 alone is of the coreset
  ask(cache, 0, {2});
  cache.begin_pass({{0, {{0, 8}, {9, 9}}}});  // the same block
  ask(cache, 0, {3});
  ask(cache, 0, {4});
  layers.taken();
  ask(cache, 0, {1});
  EXPECT_EQ(layers.taken(), Reads{}) << "it is older than the others, and has stayed";
  cache.begin_pass({{0, {{8, 16}, {9, 9}}}});  // the next block
  for (const int32_t e : {4, 5, 6}) ask(cache, 0, {e});
  layers.taken();
  ask(cache, 0, {1});
  EXPECT_EQ(layers.taken(), (Reads{{0, 1}}));
}

TEST(ExpertCache, ACoresetIsItsSequences) {
  Layers layers(1);
  ExpertCache cache(2, layers.reader());
  const ExpertCache::Core core{{0, 8}, {0, 8}};
  cache.begin_pass({{0, core}, {1, core}});
  ask(cache, 0, {1}, 1);
  ask(cache, 0, {1}, 0);
  cache.begin_pass({{1, core}});  // sequence 0 has ended, and sequence 1 has not
  ask(cache, 0, {2}, 0);
  ask(cache, 0, {3}, 0);
  layers.taken();
  ask(cache, 0, {1}, 0);
  EXPECT_EQ(layers.taken(), Reads{});
  cache.begin_pass({});
  ask(cache, 0, {2}, 0);
  ask(cache, 0, {3}, 0);
  layers.taken();
  ask(cache, 0, {1}, 0);
  EXPECT_EQ(layers.taken(), (Reads{{0, 1}}));
}

// The sequences of other ranks' rows are unknown.
TEST(ExpertCache, RowsOfAnybodyAreOfTheCoresetsOfAll) {
  Layers layers(1);
  ExpertCache cache(2, layers.reader());
  const auto send = [&](const std::vector<int32_t>& experts) {
    return cache.bank(0, kExperts,
                      Tensor::from(std::span<const int32_t>(experts), {std::ssize(experts), 1}));
  };
  const ExpertCache::Core core{{0, 8}, {0, 1}};
  cache.begin_pass({{0, core}, {1, core}});
  const auto some = send({1, 1, -1});
  for (int64_t e = 0; e < kExperts; ++e) EXPECT_EQ(some[size_t(e)].up != nullptr, e == 1) << e;
  for (const auto& left : {std::map<int, ExpertCache::Core>{{1, core}}, {}}) {
    cache.begin_pass(left);  // sequence 0 has ended, then both
    for (const int32_t e : {2, 3}) ask(cache, 0, {e});
    layers.taken();
    send({1});
    EXPECT_EQ(layers.taken(), left.empty() ? (Reads{{0, 1}}) : Reads{});
  }
}

// Layers run in turn, so the oldest expert would always be needed next: 8 reads a pass.
TEST(ExpertCache, OfCoresetsThatDoNotFitTheLayerBeforeLeavesFirst) {
  Layers layers(4);
  ExpertCache cache(6, layers.reader());
  std::vector<size_t> reads;
  for (int pass = 0; pass < 7; ++pass) {
    cache.begin_pass({{0, {{0, 2}, {0, 2}}}});
    for (int site = 0; site < 4; ++site) ask(cache, site, {1, 3});
    reads.push_back(layers.taken().size());
  }
  EXPECT_EQ(reads, (std::vector<size_t>{8, 2, 2, 4, 2, 2, 4}));
}

TEST(ExpertCache, HoldsNoMoreThanItMay) {
  Layers layers(1);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  int read = 0;
  ExpertCache cache(3, [&](int, int64_t) {
    ++read;
    return bank(1, 1, DType::f32, {true}).routed->front();
  });
  ask(cache, 0, {0});
  const int64_t one = scope.memory->current(tensor::MemoryClass::weights);
  std::mt19937 engine(1);
  for (int i = 0; i < 200; ++i) {
    cache.begin_pass({{0, {{i / 5, i / 5 + 1}, {0, 2}}}});
    ask(cache, int(engine() % 4), {int32_t(engine() % 8), int32_t(engine() % 8)});
    EXPECT_LE(scope.memory->current(tensor::MemoryClass::weights), 3 * one);
    EXPECT_EQ(scope.memory->current(tensor::MemoryClass::weights), cache.size() * one);
  }
  EXPECT_EQ(cache.use().misses, read);
  cache.resize(1);
  EXPECT_EQ(scope.memory->current(tensor::MemoryClass::weights), one);
  try {
    ask(cache, 0, {1, 2});
    ADD_FAILURE() << "two are more than one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory);
    EXPECT_NE(std::string(e.what()).find("go to 2 experts of a layer, and there is memory for 1"),
              std::string::npos)
        << e.what();
  }
}

TEST(ExpertCache, TheNextOneGoesOnWithWhatStays) {
  Layers layers(1);
  ExpertCache first(4, layers.reader());
  for (const int32_t e : {1, 2, 3, 4, 2}) ask(first, 0, {e});
  const auto kept = first.release();
  EXPECT_EQ(first.size(), 0);
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_EQ(kept.front().key, (ExpertCache::Key{0, 2}));
  ExpertCache next(3, layers.reader());
  layers.taken();
  next.adopt(kept);
  EXPECT_EQ(next.size(), 3);
  ask(next, 0, {5});  // 3 is the oldest of 2, 4 and 3
  ask(next, 0, {2});
  ask(next, 0, {4});
  EXPECT_EQ(layers.taken(), (Reads{{0, 5}}));
}

// A store shares an expert among all users while any user holds the expert.
TEST(ExpertCache, CountsWhatItHoldsWhoeverReadItAndSharesIt) {
  std::weak_ptr<const ops::Expert> known;
  std::vector<std::shared_ptr<const ops::Expert>> users;
  const auto read = [&](int, int64_t) {
    auto value = known.lock();
    if (!value)
      known = value = std::make_shared<ops::Expert>(bank(1, 1, DType::f32).routed->front());
    users.push_back(value);
    return *value;
  };
  tensor::Scope scopes[2];
  for (tensor::Scope& scope : scopes) scope.memory = std::make_shared<tensor::MemoryTracker>();
  ExpertCache cache(1, read);
  {
    const tensor::BindScope bind(scopes[0]);
    ask(cache, 0, {0});
  }
  const int64_t one = scopes[0].memory->current();
  EXPECT_GT(one, 0);
  auto kept = cache.release();  // others still hold the expert
  EXPECT_EQ(scopes[0].memory->current(), 0);
  ExpertCache next(1, read);
  {
    const tensor::BindScope bind(scopes[1]);
    next.adopt(std::move(kept));
  }
  EXPECT_EQ(scopes[1].memory->current(), one);
  next.resize(0);
  EXPECT_EQ(scopes[1].memory->current(), 0);
}

TEST(ExpertCache, AFailureToReadLeavesItAsItIs) {
  Layers layers(1);
  bool broken = false;
  ExpertCache cache(2, [&, read = layers.reader()](int site, int64_t expert) {
    if (broken) throw Error(ErrorCode::model, "gone");
    return read(site, expert);
  });
  ask(cache, 0, {1, 2});
  broken = true;
  EXPECT_THROW(ask(cache, 0, {3}), Error);
  broken = false;
  EXPECT_NE(ask(cache, 0, {2, 3})[3].up, nullptr);
  EXPECT_EQ(cache.size(), 2);
}

TEST(ExpertCache, LayersOverItHaveTheBitsOfAllInMemory) {
  Layers layers(3);
  std::vector<ExpertWeights> bare;  // as in a model without experts
  for (const ExpertWeights& whole : layers.all)
    bare.push_back({std::make_shared<std::vector<ops::Expert>>(kExperts), whole.shared});
  const auto cache = std::make_shared<ExpertCache>(kExperts, layers.reader());
  MoeLayers here,
      streamed(std::make_shared<VanillaPolicy>(), std::make_unique<LocalBackend>(cache));
  int shown = 0;
  streamed.log().watch([&](const MoeWork& work) {
    shown += work.weights.routed->at(size_t(work.routing.ids.data<int32_t>()[0])).up != nullptr;
  });
  const TokenView view{-1, {0}, {}, {{0, {0, 9}}}, {9}};
  for (uint32_t pass = 0; pass < 4; ++pass)
    for (int site = 0; site < 3; ++site) {
      const Tensor x = normal({9, 32}, 10 * pass + uint32_t(site));
      const Router route = router(kExperts, 2, 7 + uint32_t(site));
      const auto at = static_cast<size_t>(site);
      EXPECT_EQ(streamed.apply(site, view, x, route, bare[at]).to_floats(),
                here.apply(site, view, x, route, layers.all[at]).to_floats());
    }
  EXPECT_EQ(shown, 12);
  EXPECT_GT(cache->use().misses, kExperts);
}

TEST(ExpertCache, OnMetaOneStandsForAllAndCountsNowhere) {
  Layers layers(1);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  ExpertCache cache(1, [](int, int64_t) { return bank(1, 1, DType::f32).routed->front(); });
  const Tensor ids = Tensor::empty({4, 2}, DType::i32, tensor::Device::meta);
  const auto before = scope.memory->current();
  const auto found = cache.bank(0, kExperts, {{0, {0, 4}}}, ids);
  ASSERT_EQ(found.size(), size_t{kExperts});
  EXPECT_NE(found[0].up, nullptr);
  EXPECT_EQ(scope.memory->current(), before);
}

}  // namespace
}  // namespace tessera::nn
