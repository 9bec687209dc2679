#include "fused/actors.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/stop.h"
#include "fused/polled_ranks.h"
#include "nn/random_bank.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace nn::random_bank;
using namespace std::chrono_literals;

// Carries transfers later, in any order: what the contract of a wire allows.
class Postman {
 public:
  Postman(ThreadRanks& ranks, uint32_t seed) : ranks_(ranks), random_(seed) {
    for (int r = 0; r < ranks.layout().ranks; ++r)
      wires_.push_back(std::make_unique<Letterbox>(*this, r));
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }
  Wire& wire(int rank) { return *wires_[size_t(rank)]; }

 private:
  class Letterbox final : public Wire {
   public:
    Letterbox(Postman& postman, int rank) : postman_(postman), rank_(rank) {}
    void put(const Transfer& transfer) override {
      const std::lock_guard lock(postman_.mutex_);
      postman_.letters_.push_back({rank_, transfer});
      postman_.came_.notify_one();
    }

   private:
    Postman& postman_;
    int rank_;
  };
  void work(const std::stop_token& stop) {
    for (;;) {
      std::pair<int, Transfer> letter;
      {
        std::unique_lock lock(mutex_);
        if (!came_.wait(lock, stop, [&] { return !letters_.empty(); })) return;
        std::swap(letters_[random_() % letters_.size()], letters_.back());
        letter = letters_.back();
        letters_.pop_back();
      }
      if (random_() % 200 == 0) std::this_thread::sleep_for(100us);
      ranks_.deliver(letter.first, letter.second);
    }
  }

  ThreadRanks& ranks_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable_any came_;
  std::vector<std::pair<int, Transfer>> letters_;
  std::vector<std::unique_ptr<Letterbox>> wires_;
  std::jthread thread_;
};

// A layer over some ranks that are threads with threads of their own.
struct Gang {
  Gang(std::vector<int64_t> tokens_of, int experts, int top_k, int processors)
      : router_of(router(experts, top_k, 3)),
        weights(bank(experts, 4, DType::f32)),
        is{.tokens = std::move(tokens_of), .manner = {processors, 2, 1, 2, 3}},
        layout(Layout::dropless(is.ranks(), experts, 16L * top_k, 128, {4})),
        ranks(layout) {
    for (int e = 0; e < experts; ++e) is.owner.push_back(e % is.ranks());
  }

  // body(rank) on all ranks at once; what the first of them threw.
  std::exception_ptr at_once(const std::function<void(int)>& body) const {
    std::exception_ptr first;
    std::mutex mutex;
    std::vector<std::jthread> threads;
    for (int r = 0; r < is.ranks(); ++r)
      threads.emplace_back([&, r] {
        try {
          body(r);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    threads.clear();
    return first;
  }
  // The tokens of a rank.
  Tensor part(const Tensor& all, int r) const {
    const int64_t first = std::accumulate(is.tokens.begin(), is.tokens.begin() + r, int64_t{0});
    return all.slice(0, first, first + is.tokens[size_t(r)]);
  }
  MoeOperator rank(int r, Wire& wire) const {
    return {layout, r, is.owner, is.tokens[size_t(r)], is.manner, ranks.buffer(r), wire};
  }

  nn::Router router_of;
  nn::VanillaPolicy policy;
  nn::ExpertWeights weights;
  nn::TokenView view;
  nn::MoeCall call{0, {0, 1, true, true}, view};
  nn::Gate gate{router_of, policy, call};
  PolledCase is;
  Layout layout;
  mutable ThreadRanks ranks;
};

// Kinds of layers with the results that one rank has for them, in parts.
struct Known {
  Known(const Gang& gang, int kinds) {
    for (int i = 0; i < kinds; ++i) {
      const Tensor x = normal({gang.is.all(), 32}, uint32_t(i));
      inputs.push_back(x);
      const auto all = bulk({x, &gang.router_of, &gang.policy, &gang.weights});
      auto& parts = results.emplace_back();
      auto at = all.begin();
      for (const int64_t tokens : gang.is.tokens) {
        parts.emplace_back(at, at + tokens * 32);
        at += tokens * 32;
      }
    }
  }
  std::vector<Tensor> inputs;
  std::vector<std::vector<std::vector<float>>> results;  // by kind and rank
};

size_t threads_there_are() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return size_t(std::distance(begin(tasks), end(tasks)));
}

int64_t wrong(const std::vector<float>& got, const std::vector<float>& want) {
  int64_t differ = got.size() != want.size();
  for (size_t i = 0; i < want.size() && !differ; ++i)
    differ = kernels::active_isa() != kernels::Isa::avx2 ? got[i] != want[i]
                                                         : std::abs(got[i] - want[i]) > 1e-4f;
  return differ;
}

// Each rank goes through its layers as fast as it can, but for a rest now and then.
TEST(Actors, TenThousandEpochsWithRandomDelaysGiveTheBitsOfOneRank) {
  constexpr int kEpochs = 10000, kKinds = 16;
  const Gang gang({5, 0, 9}, 4, 2, 2);
  const Known known(gang, kKinds);
  Postman postman(gang.ranks, 1);
  std::atomic<int64_t> failures{0};
  std::atomic<size_t> most_threads{0}, least_threads{1 << 20};
  const auto error = gang.at_once([&](int r) {
    base::ThreadPool pool(2);
    tensor::Scope scope;
    scope.pool = &pool;
    const tensor::BindScope bound(scope);
    MoeOperator one = gang.rank(r, postman.wire(r));
    Actors actors(one, gang.ranks, 60s);
    std::mt19937 random{uint32_t(r)};
    for (int i = 0; i < kEpochs; ++i) {
      const auto kind = size_t(i) % kKinds;
      const Tensor made = actors.run(gang.part(known.inputs[kind], r), gang.gate, gang.weights);
      failures += wrong(made.to_floats(), known.results[kind][size_t(r)]);
      if (random() % 100 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (r != 0 || i % 1000 != 500) continue;  // all ranks are under way
      most_threads = std::max<size_t>(most_threads, threads_there_are());
      least_threads = std::min<size_t>(least_threads, threads_there_are());
    }
  });
  if (error) std::rethrow_exception(error);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(most_threads, least_threads) << "no layer makes a thread";
}

TEST(Actors, AnyThreadsAndProcessorsDo) {
  for (const int threads : {1, 3})
    for (const int processors : {1, 4}) {
      const Gang gang({7, 3}, 3, 2, processors);
      const Known known(gang, 3);
      const auto error = gang.at_once([&](int r) {
        base::ThreadPool pool(threads);
        tensor::Scope scope;
        scope.pool = &pool;
        const tensor::BindScope bound(scope);
        MoeOperator one = gang.rank(r, gang.ranks.wire(r));
        Actors actors(one, gang.ranks, 60s);
        for (size_t i = 0; i < 3; ++i)
          EXPECT_EQ(
              wrong(actors.run(gang.part(known.inputs[i], r), gang.gate, gang.weights).to_floats(),
                    known.results[i][size_t(r)]),
              0);
      });
      if (error) std::rethrow_exception(error);
    }
}

// What tasks hold is the rank's, whichever thread they run on, and so is what its ops count.
TEST(Actors, MemoryAndWorkAreCountedForTheRank) {
  const auto peak_with = [](int threads) {
    const Gang gang({8}, 3, 2, 2);
    const Known known(gang, 1);
    base::ThreadPool pool(threads);
    tensor::Scope scope;
    scope.pool = &pool;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    scope.meter = std::make_shared<tensor::Meter>();
    {
      const tensor::BindScope bound(scope);
      MoeOperator one = gang.rank(0, gang.ranks.wire(0));
      Actors actors(one, gang.ranks, 60s);
      for (int i = 0; i < 20; ++i) (void)actors.run(known.inputs[0], gang.gate, gang.weights);
    }
    EXPECT_GT(scope.meter->total().flops, 0);
    EXPECT_EQ(scope.memory->current(tensor::MemoryClass::activations), 0);
    return std::pair(scope.memory->peak() > 0, scope.meter->total().flops);
  };
  EXPECT_TRUE(peak_with(1).first);
  EXPECT_EQ(peak_with(3), peak_with(1));
}

std::string message_of(const std::exception_ptr& error, ErrorCode code) {
  if (!error) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
}

// Rank 1 ends in its own way; rank 0 would go on for ever.
std::exception_ptr endless(std::chrono::milliseconds deadline,
                           const std::function<void(int layer)>& end_of_rank_1,
                           std::stop_token stop = {}) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  return gang.at_once([&](int r) {
    const base::BindStop stoppable(stop);
    base::ThreadPool pool(2);
    tensor::Scope scope;
    scope.pool = &pool;
    const tensor::BindScope bound(scope);
    MoeOperator one = gang.rank(r, gang.ranks.wire(r));
    Actors actors(one, gang.ranks, deadline);
    for (int i = 0;; ++i) {
      if (r == 1) end_of_rank_1(i);
      if (r == 1 && deadline < 1s) return;  // before its first: no other wait can be too long
      (void)actors.run(gang.part(known.inputs[0], r), gang.gate, gang.weights);
    }
  });
}

TEST(Actors, ARankThatStaysAwayIsNamedAfterTheDeadline) {
  const std::string says = message_of(endless(200ms, [](int) {}), ErrorCode::rank);
  EXPECT_NE(says.find("rank 0 waits in epoch 1 for the counts of rank 1"), std::string::npos)
      << says;
  EXPECT_NE(says.find("got on in 0.2 s"), std::string::npos) << says;
}

TEST(Actors, AStopRequestEndsAllRanks) {
  std::stop_source source;
  const auto stop_later = [&](int layer) {
    if (layer == 3) source.request_stop();
  };
  (void)message_of(endless(60s, stop_later, source.get_token()), ErrorCode::cancelled);
}

TEST(Actors, AFailureOfOneRankEndsTheOthersWithIt) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  std::vector<std::string> said(2);
  (void)gang.at_once([&](int r) {
    base::ThreadPool pool(2);
    tensor::Scope scope;
    scope.pool = &pool;
    const tensor::BindScope bound(scope);
    MoeOperator one = gang.rank(r, gang.ranks.wire(r));
    Actors actors(one, gang.ranks, 60s);
    try {
      for (int i = 0;; ++i) {
        Tensor x = gang.part(known.inputs[0], r).contiguous();
        if (r == 1 && i == 2) {  // the router refuses it, in its task
          x = normal({6, 32}, 1);
          x.data<float>()[3] = NAN;
        }
        (void)actors.run(x, gang.gate, gang.weights);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      said[size_t(r)] = e.what();
    }
  });
  EXPECT_FALSE(said[0].empty());
  EXPECT_EQ(said[0], said[1]);
}

}  // namespace
}  // namespace tessera::fused
