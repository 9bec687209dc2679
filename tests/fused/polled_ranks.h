#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fused/operator.h"

namespace tessera::fused {

// The choice of the next actor.
enum class Order {
  random,    // any actor
  lopsided,  // the first of a list for as long as possible; the list changes occasionally
  delayed,   // some only if no other can act
};

struct PolledCase {
  std::vector<int> owner;       // rank of each expert
  std::vector<int64_t> tokens;  // tokens of each rank
  OperatorOptions manner{};
  int64_t tile = 4;
  std::optional<int64_t> capacity{};  // capacity of the layout; none: dropless
  int64_t window = 0;                 // then the tiles of a run, 0: all
  Order order = Order::random;
  uint32_t seed = 1;
  int ranks() const { return int(tokens.size()); }
  int64_t all() const { return std::accumulate(tokens.begin(), tokens.end(), int64_t{0}); }
};

// The input of a layer: each rank takes its own tokens of the whole.
struct LayerInput {
  nn::Tensor tokens;  // tokens of all ranks
  const nn::Router* router;
  const nn::ExpertPolicy* policy;
  const nn::ExpertWeights* weights;
};

// A rank's part of a policy's choice for all tokens.
class PartOfWhole final : public nn::ExpertPolicy {
 public:
  PartOfWhole(ops::Routing whole, int64_t first) : whole_(std::move(whole)), first_(first) {}
  ops::Routing choose(const nn::MoeCall&, const nn::Tensor& tokens, const nn::Tensor&,
                      const ops::RoutingOptions&) const override {
    const int64_t end = first_ + tokens.size(0);
    return {whole_.ids.slice(0, first_, end), whole_.weights.slice(0, first_, end)};
  }

 private:
  ops::Routing whole_;
  int64_t first_;
};

// All ranks of an operator and the wire between them, run by a single thread in a random order from
// a seed. Transfers wait, overtake each other, and deliver rows before their word, but not
// together.
class PolledRanks {
 public:
  PolledRanks(const PolledCase& c, int top_k, int64_t row_bytes) : is_(c), random_(c.seed) {
    int experts = 1;
    for (int r = 0; r < c.ranks(); ++r)
      experts = std::max(experts, int(std::count(c.owner.begin(), c.owner.end(), r)));
    const int64_t most = *std::max_element(c.tokens.begin(), c.tokens.end());
    layout_ = c.capacity ? Layout::fixed(c.ranks(), experts, *c.capacity, row_bytes, {c.tile})
                         : Layout::dropless(c.ranks(), experts, most * std::min(top_k, experts),
                                            row_bytes, {c.tile}, c.window);
    for (int r = 0; r < c.ranks(); ++r) {
      buffers_.push_back(nn::Tensor::zeros({layout_.bytes()}, nn::DType::u8));
      heaps_.push_back(std::make_unique<Sent>(*this, r));
      poison(r);
      ranks_.push_back(std::make_unique<MoeOperator>(layout_, c.owner, c.tokens[size_t(r)],
                                                     c.manner, *heaps_.back()));
    }
  }

  // Layer after layer, each rank as soon as possible: [layer] -> the results of all ranks, joined.
  std::vector<std::vector<float>> run(const std::vector<LayerInput>& layers) {
    std::vector<std::vector<nn::Tensor>> made(size_t(is_.ranks()));
    begin_all(layers);
    const auto over = [&] {
      return std::all_of(made.begin(), made.end(),
                         [&](const auto& one) { return one.size() == layers.size(); });
    };
    for (int64_t tick = 0; !over(); ++tick) {
      if (!go_on(tick)) {
        ADD_FAILURE() << "nobody can go on";
        break;
      }
      for (int r = 0; r < is_.ranks(); ++r) {
        if (made[size_t(r)].size() == layers.size() || !ranks_[size_t(r)]->done()) continue;
        made[size_t(r)].push_back(ranks_[size_t(r)]->result());
        if (made[size_t(r)].size() < layers.size()) begin(r, layers, made[size_t(r)].size());
      }
    }
    std::vector<std::vector<float>> joined(layers.size());
    for (const auto& rank : made)
      for (size_t l = 0; l < rank.size(); ++l) {
        const std::vector<float> values = rank[l].to_floats();
        joined[l].insert(joined[l].end(), values.begin(), values.end());
      }
    return joined;
  }

  // Rows of each expert in the last layer.
  std::vector<int32_t> kept() const {
    std::vector<int32_t> rows(is_.owner.size());
    for (const auto& rank : ranks_)
      for (const int64_t e : rank->routing().ids.to_ints())
        if (e >= 0) ++rows[size_t(e)];
    return rows;
  }
  int64_t payload_bytes() const { return payload_; }

 private:
  struct Flight {
    int from;
    Transfer transfer;
    bool rows_are_there;
  };
  class Sent final : public SymmetricHeap {
   public:
    Sent(PolledRanks& all, int rank) : SymmetricHeap(nullptr, rank, all.buffer(rank)), all_(all) {}
    void put(const Transfer&) override { FAIL() << "nobody would know of it"; }
    void signal(const Transfer&) override { FAIL() << "words go with their rows"; }
    void put_signal(const Transfer& t) override {
      all_.flights_.push_back({rank(), t, t.bytes == 0});
    }

   private:
    PolledRanks& all_;
  };

  std::byte* buffer(int r) const { return static_cast<std::byte*>(buffers_[size_t(r)].raw()); }
  // Unwritten memory holds NaN.
  void poison(int r) {
    std::memset(buffer(r) + layout_.count_region(), 0xff, size_t(layout_.row_region()));
  }
  static nn::StepInfo step() { return {0, 1, true, true}; }

  // The gates of all layers and ranks: the policy's choice for the whole.
  void begin_all(const std::vector<LayerInput>& layers) {
    for (const LayerInput& layer : layers) {
      const nn::TokenView view{-1, {0}, {}, {{0, {0, is_.all()}}}, {}, nullptr};
      const nn::MoeCall call{0, step(), view};
      const ops::Routing whole = nn::Gate(*layer.router, *layer.policy, call)(layer.tokens);
      int64_t first = 0;
      for (int r = 0; r < is_.ranks(); first += is_.tokens[size_t(r)], ++r) {
        parts_.push_back(std::make_unique<PartOfWhole>(whole, first));
        gates_.push_back(std::make_unique<nn::Gate>(*layer.router, *parts_.back(), call_));
      }
    }
    for (int r = 0; r < is_.ranks(); ++r) begin(r, layers, 0);
  }
  void begin(int r, const std::vector<LayerInput>& layers, size_t l) {
    const int64_t first = std::accumulate(is_.tokens.begin(), is_.tokens.begin() + r, int64_t{0});
    ranks_[size_t(r)]->begin(layers[l].tokens.slice(0, first, first + is_.tokens[size_t(r)]),
                             *gates_[l * size_t(is_.ranks()) + size_t(r)], *layers[l].weights);
  }

  // Actors: for each rank the polling actor and the workers; last the wire.
  int actors() const { return is_.ranks() * (1 + is_.manner.processors) + 1; }
  bool act(int actor) {
    if (actor == actors() - 1) return deliver();
    MoeOperator& rank = *ranks_[size_t(actor / (1 + is_.manner.processors))];
    const int i = actor % (1 + is_.manner.processors);
    return i == 0 ? rank.poll() : rank.work(i - 1);
  }
  bool go_on(int64_t tick) {
    if (order_.empty() || tick % 60 == 0) {
      order_.resize(size_t(actors()));
      std::iota(order_.begin(), order_.end(), 0);
      std::shuffle(order_.begin(), order_.end(), random_);
      if (is_.order == Order::delayed)  // a rank, or the wire
        std::stable_partition(order_.begin(), order_.end(), [&](int a) {
          return a / (1 + is_.manner.processors) != int(is_.seed) % (is_.ranks() + 1);
        });
    }
    if (is_.order == Order::random) std::shuffle(order_.begin(), order_.end(), random_);
    return std::any_of(order_.begin(), order_.end(), [&](int a) { return act(a); });
  }
  bool deliver() {
    if (flights_.empty()) return false;
    const size_t i = is_.order == Order::lopsided ? flights_.size() - 1  // the latest first
                                                  : random_() % flights_.size();
    Flight& flight = flights_[i];
    const Transfer t = flight.transfer;
    if (!flight.rows_are_there) {
      std::memcpy(buffer(t.to) + t.at, buffer(flight.from) + t.from, size_t(t.bytes));
      payload_ += t.bytes;
      flight.rows_are_there = true;
      return true;
    }
    std::memcpy(buffer(t.to) + t.word, &t.value, 8);
    flights_.erase(flights_.begin() + int64_t(i));
    return true;
  }

  const PolledCase is_;
  std::mt19937 random_;
  Layout layout_;
  std::vector<nn::Tensor> buffers_;
  std::vector<std::unique_ptr<Sent>> heaps_;
  std::vector<std::unique_ptr<MoeOperator>> ranks_;
  nn::TokenView view_;
  nn::MoeCall call_{0, step(), view_};
  std::vector<std::unique_ptr<PartOfWhole>> parts_;
  std::vector<std::unique_ptr<nn::Gate>> gates_;
  std::vector<Flight> flights_;
  std::vector<int> order_;
  int64_t payload_ = 0;
};

// A single rank with all experts.
inline std::vector<float> bulk(const LayerInput& layer) {
  const nn::TokenView view{-1, {0}, {}, {{0, {0, layer.tokens.size(0)}}}, {}, nullptr};
  const nn::MoeCall call{0, {0, 1, true, true}, view};
  nn::MoeLog log;
  return nn::LocalBackend()
      .run(call, layer.tokens, nn::Gate(*layer.router, *layer.policy, call), *layer.weights, log)
      .to_floats();
}

// Equal bits: a row of a product depends on no other.
inline void expect_same(const std::vector<float>& got, const std::vector<float>& want,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got == want) << what;
}

// Rows with token and expert on two ranks, times two for the way back.
inline int64_t crossing_bytes(const PolledCase& c, const LayerInput& layer) {
  const nn::TokenView view{-1, {0}, {}, {{0, {0, layer.tokens.size(0)}}}, {}, nullptr};
  const nn::MoeCall call{0, {0, 1, true, true}, view};
  const nn::Tensor ids = nn::Gate(*layer.router, *layer.policy, call)(layer.tokens).ids;
  int64_t rows = 0, token = 0;
  for (int r = 0; r < c.ranks(); ++r)
    for (int64_t end = token + c.tokens[size_t(r)]; token < end; ++token)
      for (int64_t j = 0; j < ids.size(1); ++j) {
        const int32_t e = ids.row<int32_t>(token)[j];
        rows += e >= 0 && c.owner[size_t(e)] != r;
      }
  return 2 * rows * layer.tokens.size(1) * size_of(layer.tokens.dtype());
}

}  // namespace tessera::fused
