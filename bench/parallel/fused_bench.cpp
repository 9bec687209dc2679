// One MoE layer over 8 ranks that are threads, by the bulk exchange, by the same in 2 and 4 pieces
// whose transfers overlap (FasterMoE, Tutel), and as one operator. Each rank has a gate and links
// that take their time, drawn anew for each step: it sleeps, so cores do not matter. JSON lines.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "bench.h"
#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "fused/actors.h"
#include "fused/direct_heap.h"
#include "ops/experts.h"
#include "parallel/experts/exchange.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;
using tensor::DType;
using tensor::Tensor;

constexpr int kRanks = 8, kTopK = 2;
constexpr int64_t kHidden = 32, kInner = 16, kTile = 16;

// What leaves a rank, one after the other.
class Link {
 public:
  Link() : thread_([this](const std::stop_token& stop) { work(stop); }) {}
  void send(double seconds, std::function<void()> arrives) {
    const std::lock_guard lock(mutex_);
    // A link does not wait for the thread that plays it.
    free_ = std::max(free_, Clock::now()) +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    queue_.push_back({free_, std::move(arrives)});
    came_.notify_one();
  }

 private:
  void work(const std::stop_token& stop) {
    for (;;) {
      std::pair<Clock::time_point, std::function<void()>> next;
      {
        std::unique_lock lock(mutex_);
        if (!came_.wait(lock, stop, [&] { return !queue_.empty(); })) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      std::this_thread::sleep_until(next.first);
      next.second();
    }
  }
  std::mutex mutex_;
  std::condition_variable_any came_;
  Clock::time_point free_{};
  std::deque<std::pair<Clock::time_point, std::function<void()>>> queue_;
  std::jthread thread_;
};

// What a rank's phases take in a step; of the links for each byte.
struct Phases {
  double gate = 0, dispatch = 0, combine = 0;
};

class LinkedHeap final : public fused::SymmetricHeap {
 public:
  LinkedHeap(SymmetricHeap& below, const fused::Layout& layout)
      : SymmetricHeap(&below.ranks(), below.rank(), below.memory()),
        below_(below),
        layout_(layout) {}
  Phases phases;

  void put(const fused::Transfer& t) override { below_.put(t); }
  void signal(const fused::Transfer& t) override { below_.signal(t); }
  void put_signal(const fused::Transfer& t) override {
    if (t.bytes == 0) return below_.put_signal(t);
    const int64_t run = (t.at - layout_.count_region()) / layout_.row_bytes / layout_.run;
    const double each = run / 2 % 2 == 0 ? phases.dispatch : phases.combine;
    link_.send(each * double(t.bytes), [this, t] { below_.put_signal(t); });
  }

 private:
  SymmetricHeap& below_;
  const fused::Layout layout_;
  Link link_;
};

class LinkedTransport final : public comm::Transport {
 public:
  LinkedTransport(std::shared_ptr<Transport> below, const Phases& phases)
      : below_(std::move(below)), phases_(phases) {}
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  void send(int to, uint64_t channel, comm::Message message) override {
    const bool out = std::string_view(message.tag.operation) == "dispatch",
               back = std::string_view(message.tag.operation) == "combine";
    if (to == rank() || !(out || back)) return below_->send(to, channel, std::move(message));
    const double each = out ? phases_.dispatch : phases_.combine;
    const auto held = std::make_shared<comm::Message>(std::move(message));
    link_.send(each * double(held->data.bytes()),
               [this, to, channel, held] { below_->send(to, channel, std::move(*held)); });
  }
  void await_room(int to, const std::function<void()>& expired) override {
    below_->await_room(to, expired);
  }
  comm::Inbox& inbox() override { return below_->inbox(); }
  void advance() override { below_->advance(); }
  uint64_t progress(int rank) const override { return below_->progress(rank); }
  void wait_for(int rank) override { below_->wait_for(rank); }
  int waits_for(int rank) const override { return below_->waits_for(rank); }
  void fail_all(const Error& error) override { below_->fail_all(error); }

 private:
  const std::shared_ptr<Transport> below_;
  const Phases& phases_;
  Link link_;
};

// A gate that takes its time.
class SlowPolicy final : public nn::ExpertPolicy {
 public:
  explicit SlowPolicy(const Phases& phases) : phases_(phases) {}
  ops::Routing choose(const nn::MoeCall&, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& router) const override {
    std::this_thread::sleep_for(std::chrono::duration<double>(phases_.gate));
    return ops::route(logits, router);
  }

 private:
  const Phases& phases_;
};

struct Setting {
  int64_t tokens;  // of a rank
  int experts;
  double zipf;  // the share of expert e falls as 1 / (e + 1)^zipf
};

struct Layer {
  nn::Router router;
  nn::ExpertWeights weights;
};

Layer layer_of(const Setting& is) {
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  const auto random = [](int64_t n, int64_t k, uint32_t seed) {
    return bench::random_tensor({n, k}, DType::f32, seed, 0.2f);
  };
  for (int e = 0; e < is.experts; ++e) {
    const auto seed = uint32_t(3 * e);
    routed->push_back({ops::pack_paired_weight(random(kInner, kHidden, seed),
                                               random(kInner, kHidden, seed + 1), DType::f32),
                       ops::pack_weight(random(kHidden, kInner, seed + 2), DType::f32)});
  }
  Tensor gate = random(is.experts, kHidden, 999);
  // The first element of every token is 1: a bias of the logits.
  for (int e = 0; e < is.experts; ++e) gate.row<float>(e)[0] = -float(is.zipf * std::log(e + 1.0));
  Layer layer{{ops::pack_weight(gate, DType::f32), {}}, {std::move(routed), {}}};
  layer.router.options.top_k = kTopK;
  return layer;
}

Tensor tokens_of(const Setting& is, int rank, int step) {
  Tensor x = bench::random_tensor({is.tokens, kHidden}, DType::f32, uint32_t(step * kRanks + rank));
  for (int64_t t = 0; t < is.tokens; ++t) x.row<float>(t)[0] = 1;
  return x;
}

// A rank's layer in pieces: all leave, then each is computed as it arrives.
Tensor exchanged(const parallel::ExpertExchange& exchange, const Tensor& x, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, int pieces) {
  const ops::Routing routing = gate(x);
  std::vector<parallel::ExpertFlight> flights;
  std::vector<nn::Range> cuts;
  for (int p = 0; p < pieces; ++p) {
    cuts.push_back(nn::split({0, x.size(0)}, pieces, p));
    std::vector<int32_t> all(size_t(cuts[size_t(p)].size() * kTopK));
    std::iota(all.begin(), all.end(), 0);
    flights.push_back(exchange.dispatch(
        p, x.slice(0, cuts[size_t(p)].begin, cuts[size_t(p)].end),
        routing.ids.slice(0, cuts[size_t(p)].begin, cuts[size_t(p)].end), all, weights));
  }
  const Tensor rows = Tensor::empty({x.size(0) * kTopK, kHidden}, x.dtype());
  for (auto& flight : flights) exchange.compute(flight);
  for (size_t p = 0; p < flights.size(); ++p)
    exchange.finish(flights[p], rows.slice(0, cuts[p].begin * kTopK, cuts[p].end * kTopK));
  return ops::combine_rows(rows, routing.weights);
}

// Delays of a step, the same for all who ask: uniform over 20 to 120 ms.
std::vector<Phases> drawn(const Setting& is, const Layer& layer, int step) {
  std::mt19937 random(uint32_t(step) + 77);
  std::uniform_real_distribution<double> seconds(0.02, 0.12);
  std::vector<int64_t> out(kRanks), back(kRanks);
  const std::vector<int> owner = parallel::experts_in_blocks(is.experts, kRanks);
  for (int r = 0; r < kRanks; ++r)
    for (const int64_t e : layer.router(tokens_of(is, r, step)).ids.to_ints())
      if (const int to = owner[size_t(e)]; to != r) ++out[size_t(r)], ++back[size_t(to)];
  std::vector<Phases> phases;
  for (int r = 0; r < kRanks; ++r) {
    const auto each = [&](int64_t rows) {
      return seconds(random) / double(rows * kHidden * 4 + 1);
    };
    const double gate = seconds(random), leaves = each(out[size_t(r)]);
    phases.push_back({gate, leaves, each(back[size_t(r)])});
  }
  return phases;
}

struct Steps {
  Clock::time_point begin[kRanks], end[kRanks];
  std::vector<double> seconds;
  bool same = true;
};

using MakeLayer = std::function<std::function<Tensor(const Tensor&, const nn::Gate&)>(
    comm::Communicator& world, Phases& now)>;

Steps measured(const Setting& is, const Layer& layer, int steps, const MakeLayer& make) {
  Steps all;
  comm::threads::run(kRanks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    Phases now;
    const auto run = make(world, now);
    const SlowPolicy policy(now);
    const nn::TokenView view;
    const nn::MoeCall call{0, {0, 1, true, true}, view};
    const nn::Gate gate(layer.router, policy, call);
    const auto r = size_t(world.rank());
    for (int step = 0; step < steps; ++step) {
      const Tensor x = tokens_of(is, world.rank(), step);
      now = drawn(is, layer, step)[r];
      const Tensor want = ops::experts(x, layer.router(x), *layer.weights.routed);
      comm::barrier(world);
      all.begin[r] = Clock::now();
      const Tensor made = run(x, gate);
      all.end[r] = Clock::now();
      if (made.to_floats() != want.to_floats()) all.same = false;
      comm::barrier(world);
      if (r == 0)
        all.seconds.push_back(
            std::chrono::duration<double>(*std::max_element(all.end, all.end + kRanks) -
                                          *std::min_element(all.begin, all.begin + kRanks))
                .count());
      comm::barrier(world);
    }
  });
  return all;
}

MakeLayer in_pieces(const Setting& is, const Layer& layer, int pieces) {
  return [&is, &layer, pieces](comm::Communicator& world, Phases& now) {
    auto linked = std::shared_ptr<comm::Communicator>(world.over(
        [&now](auto below, auto) { return std::make_shared<LinkedTransport>(below, now); }));
    const parallel::ExpertExchange exchange(linked.get(),
                                            parallel::experts_in_blocks(is.experts, kRanks));
    return [linked, exchange, &layer, pieces](const Tensor& x, const nn::Gate& gate) {
      return exchanged(exchange, x, gate, layer.weights, pieces);
    };
  };
}

MakeLayer as_one(const Setting& is, const Layer& layer) {
  struct Parts {
    std::unique_ptr<fused::SymmetricHeap> below;
    std::unique_ptr<LinkedHeap> heap;
    std::unique_ptr<fused::MoeOperator> one;
    std::unique_ptr<fused::Actors> actors;
  };
  return [&is, &layer](comm::Communicator& world, Phases& now) {
    const int mine = (is.experts + kRanks - 1) / kRanks;
    const auto layout = fused::Layout::dropless(kRanks, mine, is.tokens * std::min(kTopK, mine),
                                                kHidden * 4, {kTile});
    auto parts = std::make_shared<Parts>();
    parts->below = fused::open_heap(
        world, {layout.bytes(), layout.count_region(), layout.bytes() - 8 * layout.flags()},
        tensor::Device::cpu);
    parts->heap = std::make_unique<LinkedHeap>(*parts->below, layout);
    parts->one = std::make_unique<fused::MoeOperator>(
        layout, parallel::experts_in_blocks(is.experts, kRanks), is.tokens, fused::Manner{},
        *parts->heap);
    parts->actors = std::make_unique<fused::Actors>(*parts->one);
    return [parts, &now, &layer](const Tensor& x, const nn::Gate& gate) {
      parts->heap->phases = now;
      return parts->actors->run(x, gate, layer.weights);
    };
  };
}

void measure(const Setting& is, int steps) {
  const Layer layer = layer_of(is);
  double sums = 0, maxima = 0;  // over the steps: max of ranks' sums, sum of phases' maxima
  const std::vector<int> owner = parallel::experts_in_blocks(is.experts, kRanks);
  for (int step = 0; step < steps; ++step) {
    std::vector<int64_t> out(kRanks), back(kRanks);
    for (int r = 0; r < kRanks; ++r)
      for (const int64_t e : layer.router(tokens_of(is, r, step)).ids.to_ints())
        if (const int to = owner[size_t(e)]; to != r) ++out[size_t(r)], ++back[size_t(to)];
    double most = 0, gate = 0, dispatch = 0, combine = 0;
    const auto phases = drawn(is, layer, step);
    for (size_t r = 0; r < kRanks; ++r) {
      const double leaves = phases[r].dispatch * double(out[r] * kHidden * 4),
                   returns = phases[r].combine * double(back[r] * kHidden * 4);
      most = std::max(most, phases[r].gate + leaves + returns);
      gate = std::max(gate, phases[r].gate);
      dispatch = std::max(dispatch, leaves);
      combine = std::max(combine, returns);
    }
    sums += most / steps;
    maxima += (gate + dispatch + combine) / steps;
  }
  const auto print = [&](const std::string& name, const MakeLayer& make) {
    const Steps did = measured(is, layer, steps, make);
    const double mean =
        std::accumulate(did.seconds.begin(), did.seconds.end(), 0.0) / double(steps);
    std::puts(
        fmt::format("{{\"bench\":\"fused\",\"how\":\"{}\",\"ranks\":{},\"tokens\":{},"
                    "\"experts\":{},\"zipf\":{},\"steps\":{},\"ms\":{:.1f},"
                    "\"max_of_sums_ms\":{:.1f},\"sum_of_maxima_ms\":{:.1f},\"same_bits\":{}}}",
                    name, kRanks, is.tokens, is.experts, is.zipf, steps, mean * 1e3, sums * 1e3,
                    maxima * 1e3, did.same)
            .c_str());
    std::fflush(stdout);
  };
  print("fused", as_one(is, layer));
  print("bulk", in_pieces(is, layer, 1));
  print("2 pieces", in_pieces(is, layer, 2));
  print("4 pieces", in_pieces(is, layer, 4));
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 10;
  for (const int64_t tokens : {256, 1024})
    for (const int experts : {8, 64})
      for (const double zipf : {0.0, 1.0}) measure({tokens, experts, zipf}, steps);
}
