#include "fused/actors.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/stop.h"
#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "fused/delayed_heap.h"
#include "fused/open_heap.h"
#include "fused/polled_ranks.h"
#include "nn/random_bank.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace {
std::atomic<int64_t> threads_made{0};
}  // namespace

// Replaces the C library's function: counts each thread of this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* with) {
  using Create = decltype(&pthread_create);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  ++threads_made;
  return create(thread, attributes, run, with);
}

namespace tessera::fused {
namespace {

using namespace nn::random_bank;
using namespace std::chrono_literals;

// A layer over ranks as threads, with threads of their own.
struct Gang {
  Gang(std::vector<int64_t> tokens_of, int experts, int top_k, int processors)
      : router_of(router(experts, top_k, 3)),
        weights(bank(experts, 4, DType::f32)),
        is{.tokens = std::move(tokens_of), .manner = {processors, 2, 1, 2, 3}},
        layout(Layout::dropless(is.ranks(), experts, 16L * top_k, 128, {4}, 2)) {
    for (int e = 0; e < experts; ++e) is.owner.push_back(e % is.ranks());
  }

  // Runs body(heap) on all ranks at once, each with its own pool; returns the first exception.
  std::exception_ptr at_once(int threads, std::chrono::milliseconds deadline,
                             const std::function<void(SymmetricHeap& heap)>& body) const {
    try {
      comm::threads::run(is.ranks(), deadline, [&](comm::Communicator& world) {
        base::ThreadPool pool(threads);
        tensor::Scope scope;
        scope.pool = &pool;
        const tensor::BindScope bound(scope);
        body(*opened(world));
      });
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
  std::unique_ptr<SymmetricHeap> opened(comm::Communicator& world) const {
    return open_heap(world, heap_of(layout), tensor::Device::cpu);
  }
  // The tokens of a rank.
  Tensor part(const Tensor& all, int r) const {
    const int64_t first = std::accumulate(is.tokens.begin(), is.tokens.begin() + r, int64_t{0});
    return all.slice(0, first, first + is.tokens[size_t(r)]);
  }
  MoeOperator rank(SymmetricHeap& heap) const {
    return {layout, is.owner, is.tokens[size_t(heap.rank())], is.manner, heap};
  }

  nn::Router router_of;
  nn::VanillaPolicy policy;
  nn::ExpertWeights weights;
  nn::TokenView view;
  nn::MoeCall call{0, {0, 1, true, true}, view};
  nn::Gate gate{router_of, policy, call};
  PolledCase is;
  Layout layout;
};

// Kinds of layers with the results of a single rank, in parts.
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

// A joined thread may stay in the list for a moment.
bool ended_but(size_t threads) {
  for (int i = 0; i < 60000 && threads_there_are() > threads; ++i) std::this_thread::sleep_for(1ms);
  return threads_there_are() <= threads;
}

int64_t wrong(const std::vector<float>& got, const std::vector<float>& want) { return got != want; }

// Each rank runs its layers at full speed, except for an occasional rest.
TEST(Actors, TenThousandEpochsWithRandomDelaysGiveTheBitsOfOneRank) {
  constexpr int kEpochs = 10000, kKinds = 16;
  const Gang gang({5, 0, 9}, 4, 2, 2);
  const Known known(gang, kKinds);
  std::atomic<int64_t> failures{0};
  std::atomic<size_t> most_threads{0}, least_threads{1 << 20};
  std::atomic<int64_t> made_before{0};
  const auto error = gang.at_once(2, 60s, [&](SymmetricHeap& heap) {
    const int r = heap.rank();
    DelayedHeap late(heap, uint32_t(r));
    MoeOperator one = gang.rank(late);
    Actors actors(one);
    std::mt19937 random{uint32_t(r)};
    comm::barrier(heap.ranks());
    for (int i = 0; i < kEpochs; ++i) {
      const auto kind = size_t(i) % kKinds;
      const Tensor made = actors.run(gang.part(known.inputs[kind], r), gang.gate, gang.weights);
      failures += wrong(made.to_floats(), known.results[kind][size_t(r)]);
      if (random() % 100 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      if (r != 0 || i % 1000 != 500) continue;  // all ranks are under way
      if (i == 500) made_before = threads_made.load();
      most_threads = std::max<size_t>(most_threads, threads_there_are());
      least_threads = std::min<size_t>(least_threads, threads_there_are());
    }
    comm::barrier(heap.ranks());  // late transfers have arrived
  });
  if (error) std::rethrow_exception(error);
  EXPECT_EQ(failures, 0);
  EXPECT_GT(made_before, 3) << "threads are counted";
  EXPECT_EQ(threads_made, made_before) << "no layer makes a thread";
  EXPECT_EQ(most_threads, least_threads) << "and none ends";
}

TEST(Actors, AnyThreadsAndProcessorsDo) {
  for (const int threads : {1, 3})
    for (const int processors : {1, 4}) {
      const Gang gang({7, 3}, 3, 2, processors);
      const Known known(gang, 3);
      const auto error = gang.at_once(threads, 60s, [&](SymmetricHeap& heap) {
        MoeOperator one = gang.rank(heap);
        Actors actors(one);
        const int r = heap.rank();
        for (size_t i = 0; i < 3; ++i)
          EXPECT_EQ(
              wrong(actors.run(gang.part(known.inputs[i], r), gang.gate, gang.weights).to_floats(),
                    known.results[i][size_t(r)]),
              0);
      });
      if (error) std::rethrow_exception(error);
    }
}

// Two requests with shared threads, each waiting for threads of the other.
TEST(Actors, RequestsThatShareThreadsBothGetThrough) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  base::ThreadPool pools[2] = {base::ThreadPool(2), base::ThreadPool(2)};
  const auto request = [&](uint32_t seed) {
    comm::threads::run(2, 60s, [&](comm::Communicator& world) {
      tensor::Scope scope;
      scope.pool = &pools[world.rank()];
      const tensor::BindScope bound(scope);
      const auto heap = gang.opened(world);
      MoeOperator one = gang.rank(*heap);
      Actors actors(one);
      std::mt19937 random(seed + uint32_t(world.rank()));
      for (int i = 0; i < 40; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        std::atomic<int> ops{0};
        tensor::parallel_tasks(4, [&](int64_t) { ++ops; });
        EXPECT_EQ(
            wrong(actors.run(gang.part(known.inputs[0], world.rank()), gang.gate, gang.weights)
                      .to_floats(),
                  known.results[0][size_t(world.rank())]),
            0);
      }
    });
  };
  std::jthread other([&] { request(7); });
  request(1);
}

// Memory of tasks and counts of ops belong to the rank, on any thread.
TEST(Actors, MemoryAndWorkAreCountedForTheRank) {
  const auto peak_with = [](int threads) {
    const Gang gang({8}, 3, 2, 2);
    const Known known(gang, 1);
    std::pair<int64_t, double> counted;
    const auto error = gang.at_once(threads, 60s, [&](SymmetricHeap& heap) {
      tensor::Scope scope = tensor::current_scope();
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      scope.meter = std::make_shared<tensor::Meter>();
      const tensor::BindScope bound(scope);
      MoeOperator one = gang.rank(heap);
      Actors actors(one);
      for (int i = 0; i < 20; ++i) {
        (void)actors.run(known.inputs[0], gang.gate, gang.weights);
        one.forget();
      }
      counted = {scope.memory->peak(), scope.meter->total().flops};
      EXPECT_EQ(scope.memory->current(tensor::MemoryClass::activations), 0);
    });
    if (error) std::rethrow_exception(error);
    EXPECT_GT(counted.first, 0);
    EXPECT_GT(counted.second, 0);
    return counted;
  };
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

// Rank 1 ends as given; rank 0 would continue forever.
std::exception_ptr endless(std::chrono::milliseconds deadline,
                           const std::function<bool(int layer)>& rank_1_goes_on,
                           const std::stop_token& stop = {}) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  return gang.at_once(2, deadline, [&](SymmetricHeap& heap) {
    const base::BindStop stoppable(stop);
    MoeOperator one = gang.rank(heap);
    Actors actors(one);
    for (int i = 0; heap.rank() == 0 || rank_1_goes_on(i); ++i)
      (void)actors.run(gang.part(known.inputs[0], heap.rank()), gang.gate, gang.weights);
  });
}

TEST(Actors, ARankThatStaysAwayIsNamedAfterTheDeadline) {
  for (const int layers : {0, 3}) {
    const size_t before = threads_there_are();
    const std::string says =
        message_of(endless(2s, [&](int i) { return i < layers; }), ErrorCode::rank);
    const std::string what = fmt::format(
        "fused experts: rank 0 waits in epoch {} for the counts of rank 1 (expert 0, tile 0, flag "
        "at ",
        layers + 1);
    EXPECT_EQ(says.find(what), 0u) << says;
    EXPECT_NE(says.find("got on in 2"), std::string::npos) << says;
    EXPECT_TRUE(ended_but(before)) << "no thread is left behind";
  }
}

TEST(Actors, AStopRequestEndsAllRanks) {
  std::stop_source source;
  const auto stop_later = [&](int layer) {
    if (layer == 3) source.request_stop();
    return true;
  };
  (void)message_of(endless(60s, stop_later, source.get_token()), ErrorCode::cancelled);
}

// A rank without waits runs its tasks alone: only others exceed the deadline.
void patient(MoeOperator& one, const Tensor& tokens, const Gang& gang) {
  one.begin(tokens, gang.gate, gang.weights);
  while (!one.done()) {
    (void)one.poll();
    for (int p = 0; p < one.processors(); ++p) (void)one.work(p);
    one.heap().ranks().check();
    std::this_thread::yield();
  }
}

// A transfer to rank 0 in the third layer.
TEST(Actors, ALostTransferIsNamedAfterTheDeadline) {
  for (const bool rows : {true, false}) {
    const Gang gang({6, 6}, 4, 2, 2);
    const Known known(gang, 1);
    const size_t before = threads_there_are();
    std::atomic<int64_t> lost{-1};
    const auto error = gang.at_once(2, 2s, [&](SymmetricHeap& heap) {
      DelayedHeap late(heap, 1);
      late.loses = [&](const Transfer& t) {
        const bool here = heap.rank() == 1 && (t.bytes > 0) == rows && t.value >> 32 == 3 &&
                          (lost < 0 || lost == t.word);
        if (here) lost = t.word;
        return here;
      };
      MoeOperator one = gang.rank(late);
      Actors actors(one);
      const Tensor x = gang.part(known.inputs[0], heap.rank());
      for (;;)
        heap.rank() == 1 ? patient(one, x, gang) : void(actors.run(x, gang.gate, gang.weights));
    });
    const std::string says = message_of(error, ErrorCode::rank);
    EXPECT_EQ(says.find("fused experts: rank 0 waits in epoch 3 for the "), 0u) << says;
    EXPECT_NE(says.find(rows ? "s of rank 1 (expert " : "counts of rank 1 (expert "),
              std::string::npos)
        << says;
    if (rows) {
      EXPECT_NE(says.find(fmt::format("flag at {})", lost)), std::string::npos) << says;
    }
    EXPECT_TRUE(ended_but(before)) << "no thread is left behind";
  }
}

// A heap with a false word about an expert of rank 1, in the third layer.
class LyingHeap final : public SymmetricHeap {
 public:
  LyingHeap(SymmetricHeap& below, uint64_t rows)
      : SymmetricHeap(&below.ranks(), below.rank(), below.memory()), below_(below), rows_(rows) {}
  void put(const Transfer& t) override { below_.put(t); }
  void signal(const Transfer& t) override { below_.signal(t); }
  void put_signal(const Transfer& t) override {
    Transfer told = t;
    if (t.bytes == 0 && t.value >> 32 == 3 && rank() == 0) told.value = uint64_t{3} << 32 | rows_;
    below_.put_signal(told);
  }

 private:
  SymmetricHeap& below_;
  const uint64_t rows_;
};

TEST(Actors, CountsThatCannotBeNameTheirRankAndEpoch) {
  for (const uint64_t rows : {33ull, 0xffffffffull}) {
    const Gang gang({6, 6}, 4, 2, 2);
    const Known known(gang, 1);
    const size_t before = threads_there_are();
    const auto error = gang.at_once(2, 60s, [&](SymmetricHeap& heap) {
      LyingHeap lies(heap, rows);
      MoeOperator one = gang.rank(lies);
      Actors actors(one);
      for (;;) (void)actors.run(gang.part(known.inputs[0], heap.rank()), gang.gate, gang.weights);
    });
    const std::string says = message_of(error, ErrorCode::rank);
    EXPECT_EQ(says.find(fmt::format("fused experts: rank 0 says in epoch 3 that it sends rank 1 "
                                    "these rows for its experts: {}, ",
                                    rows)),
              0u)
        << says;
    EXPECT_TRUE(ended_but(before)) << "no thread is left behind";
  }
}

// A policy with a gate that blocks until released.
class StuckPolicy final : public nn::ExpertPolicy {
 public:
  StuckPolicy(std::atomic<bool>& stuck, std::atomic<bool>& ends) : stuck_(stuck), ends_(ends) {}
  ops::Routing choose(const nn::MoeCall&, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& options) const override {
    while (stuck_ && !ends_) std::this_thread::sleep_for(1ms);
    return ops::route(logits, options);
  }

 private:
  std::atomic<bool>&stuck_, &ends_;
};

TEST(Actors, AStuckWorkerIsNamedByTheOthersAfterTheDeadline) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  const size_t before = threads_there_are();
  std::atomic<bool> stuck{false}, ends{false};
  const StuckPolicy policy(stuck, ends);
  std::string said;
  const auto error = gang.at_once(2, 2s, [&](SymmetricHeap& heap) {
    MoeOperator one = gang.rank(heap);
    Actors actors(one);
    const nn::Gate gate(gang.router_of,
                        heap.rank() == 1 ? (const nn::ExpertPolicy&)policy : gang.policy,
                        gang.call);
    try {
      for (int i = 0;; ++i) {
        if (heap.rank() == 1) stuck = i == 2;
        (void)actors.run(gang.part(known.inputs[0], heap.rank()), gate, gang.weights);
      }
    } catch (const Error& e) {
      if (heap.rank() == 0) {
        said = e.what();
        ends = true;
      }
      throw;
    }
  });
  (void)message_of(error, ErrorCode::rank);
  const bool by_rank_0 = said.find("rank 0 waits in epoch 3 for the counts of rank 1") == 15;
  const bool by_itself = said.find("rank 1 waits in epoch 3 for ") == 15;  // as received
  EXPECT_TRUE(by_rank_0 || by_itself) << said;
  EXPECT_TRUE(ended_but(before)) << "no thread is left behind";
}

// A worker of rank 1 is stuck until rank 0 has received the error of another actor of rank 1.
TEST(Actors, AnErrorReachesTheOthersThoughAWorkerIsStuck) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  std::atomic<bool> stuck{false}, ends{false};
  const StuckPolicy policy(stuck, ends);
  std::string said;
  const auto error = gang.at_once(2, 60s, [&](SymmetricHeap& heap) {
    LyingHeap lies(heap, 1000);
    MoeOperator one = gang.rank(lies);
    Actors actors(one);
    const nn::Gate gate(gang.router_of,
                        heap.rank() == 1 ? (const nn::ExpertPolicy&)policy : gang.policy,
                        gang.call);
    try {
      for (int i = 0;; ++i) {
        if (heap.rank() == 1) stuck = i == 2;
        (void)actors.run(gang.part(known.inputs[0], heap.rank()), gate, gang.weights);
      }
    } catch (const Error& e) {
      if (heap.rank() == 0) {
        said = e.what();
        ends = true;
      }
      throw;
    }
  });
  (void)message_of(error, ErrorCode::rank);
  EXPECT_EQ(said.find("fused experts: rank 0 says in epoch 3"), 0u) << said;
}

TEST(Actors, AFailureOfOneRankEndsTheOthersWithIt) {
  const Gang gang({6, 6}, 4, 2, 2);
  const Known known(gang, 1);
  std::vector<std::string> said(2);
  (void)gang.at_once(2, 60s, [&](SymmetricHeap& heap) {
    const int r = heap.rank();
    MoeOperator one = gang.rank(heap);
    Actors actors(one);
    try {
      for (int i = 0;; ++i) {
        Tensor x = gang.part(known.inputs[0], r).contiguous();
        if (r == 1 && i == 2) {  // the router refuses the input, within its task
          x = normal({6, 32}, 1);
          x.data<float>()[3] = NAN;
        }
        (void)actors.run(x, gang.gate, gang.weights);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      said[size_t(r)] = e.what();
      throw;
    }
  });
  EXPECT_FALSE(said[0].empty());
  EXPECT_EQ(said[0], said[1]);
}

}  // namespace
}  // namespace tessera::fused
