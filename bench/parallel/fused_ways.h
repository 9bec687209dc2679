#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "comm/collectives.h"
#include "fused/actors.h"
#include "fused/open_heap.h"
#include "fused_links.h"
#include "fused_setting.h"
#include "fused_trace.h"
#include "nn/moe/policy.h"
#include "ops/elementwise.h"
#include "parallel/experts/fused_carrier.h"
#include "parallel/experts/scheduled.h"
#include "tensor/scope.h"

namespace tessera::bench {

/// Layers of a cell: experts and routing.
struct Layers {
  explicit Layers(const Setting& setting);
  nn::Router router;
  nn::ExpertWeights weights;
  std::vector<Routes> routes;
};

inline Layers::Layers(const Setting& setting) {
  const auto random = [&](int64_t n, int64_t k, uint32_t seed) {
    return random_tensor({n, k}, setting.type(), seed, float(1 / std::sqrt(double(k))));
  };
  // Each layer has separate weights: with a few cached weights, a way that computes all first
  // products before all second products would gain an unrealistic advantage.
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < setting.experts; ++e) {
    const auto seed = uint32_t(3 * e);
    routed->push_back(
        {ops::pack_paired_weight(random(setting.ffn, setting.hidden, seed),
                                 random(setting.ffn, setting.hidden, seed + 1), setting.type()),
         ops::pack_weight(random(setting.hidden, setting.ffn, seed + 2), setting.type())});
  }
  weights = {std::move(routed), {}};
  router = {ops::pack_weight(random(setting.experts, setting.hidden, 999), setting.type()), {}};
  router.options.top_k = static_cast<int>(setting.top_k);
  for (int l = 0; l < setting.layers; ++l) routes.emplace_back(setting, l);
}

/// A gate with a fixed decision and a delay.
class DrawnPolicy final : public nn::ExpertPolicy {
 public:
  DrawnPolicy(const Layers& layers, int rank) : layers_(layers), rank_(size_t(rank)) {}
  double gate_seconds = 0;
  ops::Routing choose(const nn::MoeCall& call, const Tensor&, const Tensor&,
                      const ops::RoutingOptions& router) const override {
    sleep(gate_seconds);
    const Tensor& ids = layers_.routes[size_t(call.site)].ids[rank_];
    const Tensor weights = Tensor::empty(ids.shape(), DType::f32);
    std::fill_n(weights.data<float>(), weights.elements(), 1 / float(router.top_k));
    return {ids, weights};
  }

 private:
  const Layers& layers_;
  const size_t rank_;
};

/// An implementation of a layer on a rank.
class Way {
 public:
  Way(const Setting& way_setting, const Layers& layers) : setting(way_setting), all(layers) {}
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;
  virtual Tensor run(int layer, const Tensor& x, const nn::Gate& gate, const Phases& phases,
                     const Loads& loads) = 0;
  /// Resets the counters.
  virtual void count_anew() {}
  /// Turns the recording of spans on or off.
  virtual void keep(bool spans) = 0;
  virtual std::vector<Span>& spans() = 0;
  /// Idle seconds of the workers, in all layers so far.
  double waited = 0;

 protected:
  static double each(double seconds, int64_t count) {
    return count > 0 ? seconds / double(count) : 0;
  }
  const Setting& setting;
  const Layers& all;
};

/// A single operator over all ranks.
class FusedWay final : public Way {
 public:
  FusedWay(const Setting& way_setting, const Layers& layers, comm::Communicator& world,
           Traffic& traffic, bool linked)
      : Way(way_setting, layers),
        layout_(layout_of(way_setting)),
        below_(fused::open_heap(world, fused::heap_of(layout_), tensor::Device::cpu)),
        heap_(*below_, layout_, traffic, linked),
        one_(layout_, way_setting.owner(), way_setting.tokens,
             {int(way_setting.workers), int(way_setting.parts), int(way_setting.parts),
              int(way_setting.workers) + 1, 64},
             heap_),
        actors_(one_),
        trace(world.rank(), int(way_setting.workers), way_setting.parts) {
    one_.watch(&trace);
  }
  Tensor run(int, const Tensor& x, const nn::Gate& gate, const Phases& phases,
             const Loads& loads) override {
    heap_.costs = {each(phases.dispatch, loads.out * setting.row_bytes()),
                   each(phases.combine, loads.back * setting.row_bytes())};
    trace.row_seconds = each(phases.expert, loads.computed);
    trace.begin_step(keeps_);
    const auto begin = Clock::now();
    const double busy = trace.busy;
    const Tensor output = actors_.run(x, gate, all.weights);
    waited += seconds(Clock::now() - begin) * double(setting.workers) - (trace.busy - busy);
    if (const double delay = trace.first(begin); delay >= 0) {
      first += delay;
      ++tiled_layers;
    }
    if (const double delay = trace.first_remote(begin); delay >= 0) {
      first_remote += delay;
      ++remote;
      overlapped += trace.overlaps();
    }
    one_.forget();
    return output;
  }
  void keep(bool spans) override { keeps_ = spans; }
  std::vector<Span>& spans() override { return trace.spans; }
  void count_anew() override {
    trace.count_anew();
    first = first_remote = 0;
    tiled_layers = remote = overlapped = 0;
  }
  int64_t heap_bytes() const { return layout_.bytes(); }

  double first = 0, first_remote = 0;  ///< seconds to the first tile, to the first of another rank
  int64_t tiled_layers = 0, remote = 0;  ///< number of layers with such a tile
  int64_t overlapped = 0;                ///< layers with a remote tile before all rows had left

 private:
  static fused::Layout layout_of(const Setting& setting) {
    const int64_t own_experts = (setting.experts + setting.ranks - 1) / setting.ranks;
    return fused::Layout::dropless(int(setting.ranks), int(own_experts),
                                   setting.tokens * std::min(setting.top_k, own_experts),
                                   setting.row_bytes(), {setting.tile}, setting.window);
  }
  const fused::Layout layout_;
  const std::unique_ptr<fused::SymmetricHeap> below_;
  LinkedHeap heap_;
  fused::MoeOperator one_;
  fused::Actors actors_;
  bool keeps_ = false;

 public:
  RankTrace trace;
};

/// Two exchanges, there and back: whole; in pieces that all leave at once and are computed on
/// arrival (FasterMoE, Tutel); or padded for each expert to the rows of the fullest expert
/// (DeepSpeed), a number known to all ranks in advance here.
class ExchangeWay final : public Way {
 public:
  ExchangeWay(const Setting& way_setting, const Layers& layers, comm::Communicator& world,
              Traffic& traffic, bool linked, int pieces, bool padded)
      : Way(way_setting, layers),
        world_(world),
        linked_(world.over([&](auto below, auto) {
          return std::make_shared<LinkedTransport>(below, costs_, traffic, linked);
        })),
        exchange_(linked_.get(), way_setting.owner()),
        pieces_(pieces),
        padded_(padded) {}
  Tensor run(int layer, const Tensor& x, const nn::Gate& gate, const Phases& phases,
             const Loads& loads) override {
    const int64_t wire = setting.row_bytes() + 4;
    costs_ = {each(phases.dispatch, loads.out * wire),
              each(phases.combine, loads.back * setting.row_bytes())};
    const double before = linked_->ledger().total().wait_seconds;
    mark_ = Clock::now();
    const ops::Routing routing = gate(x);
    span("gate");
    Tensor tokens = x, ids = routing.ids;
    if (padded_) pad(layer, tokens, ids);
    const Tensor rows = Tensor::empty({ids.elements(), setting.hidden}, x.dtype());
    std::vector<parallel::ExpertFlight> flights = dispatch(layer, tokens, ids);
    for (auto& flight : flights) {
      if (phases.expert > 0) await(flight);
      span("wait for rows");
      sleep(phases.expert / pieces_);
      exchange_.compute(flight);
      span("experts");
    }
    for (int p = 0; p < pieces_; ++p)
      exchange_.finish(flights[size_t(p)], piece(rows, p, setting.top_k));
    span("wait for results");
    waited += linked_->ledger().total().wait_seconds - before;
    return ops::combine_rows(rows.slice(0, 0, x.size(0) * setting.top_k), routing.weights);
  }
  void keep(bool spans) override { keeps_ = spans; }
  std::vector<Span>& spans() override { return spans_; }

 private:
  void span(const char* name) {
    const auto now = Clock::now();
    if (keeps_) spans_.push_back({name, 0, mark_, now});
    mark_ = now;
  }
  Tensor piece(const Tensor& x, int p, int64_t rows_per_token) const {
    const nn::Range run = nn::split({0, x.size(0) / rows_per_token}, pieces_, p);
    return x.slice(0, run.begin * rows_per_token, run.end * rows_per_token);
  }
  // Adds padding tokens up to each expert's capacity.
  void pad(int layer, Tensor& tokens, Tensor& ids) const {
    const Routes& routes = all.routes[size_t(layer)];
    const auto& counts = routes.counts[size_t(world_.rank())];
    std::vector<int32_t> more;
    for (size_t e = 0; e < counts.size(); ++e)
      more.insert(more.end(), size_t(routes.capacity - counts[e]), int32_t(e));
    while (more.size() % size_t(setting.top_k) != 0) more.push_back(-1);
    const int64_t extra = int64_t(more.size()) / setting.top_k;
    if (extra == 0) return;
    tokens = ops::concat_rows({tokens, Tensor::zeros({extra, setting.hidden}, tokens.dtype())});
    std::vector<int32_t> padded_ids(ids.data<int32_t>(), ids.data<int32_t>() + ids.elements());
    padded_ids.insert(padded_ids.end(), more.begin(), more.end());
    ids = Tensor::from(std::span<const int32_t>(padded_ids), {tokens.size(0), setting.top_k});
  }
  std::vector<parallel::ExpertFlight> dispatch(int layer, const Tensor& tokens, const Tensor& ids) {
    std::vector<parallel::ExpertFlight> flights;
    for (int p = 0; p < pieces_; ++p) {
      const Tensor part = piece(ids, p, 1);
      std::vector<int32_t> assignments;
      for (int32_t a = 0; a < part.elements(); ++a)
        if (part.data<int32_t>()[a] >= 0) assignments.push_back(a);
      flights.push_back(exchange_.dispatch(layer * pieces_ + p, piece(tokens, p, 1), part,
                                           assignments, all.weights));
    }
    return flights;
  }
  void await(parallel::ExpertFlight& flight) {
    const auto begin = Clock::now();
    while (!flight.dispatch.done()) {
      world_.check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    waited += seconds(Clock::now() - begin);
  }

  comm::Communicator& world_;
  ByteCosts costs_;
  const std::unique_ptr<comm::Communicator> linked_;
  parallel::ExpertExchange exchange_;
  const int pieces_;
  const bool padded_;
  bool keeps_ = false;
  Clock::time_point mark_{};
  std::vector<Span> spans_;
};

/// Results of the step before (interweaved), by bulk exchanges or by fused operators, over the
/// links of the transport.
class StaleWay final : public Way {
 public:
  StaleWay(const Setting& way_setting, const Layers& layers, comm::Communicator& world,
           Traffic& traffic, bool fused)
      : Way(way_setting, layers), world_(world), traffic_(traffic) {
    const Plan plan = parse_plan("schedule=interweaved");
    std::unique_ptr<parallel::ExpertCarrier> carrier =
        std::make_unique<parallel::ExpertExchange>(&world, setting.owner());
    if (fused)
      carrier = std::make_unique<parallel::FusedCarrier>(
          world, parallel::FusedSize{setting.owner(), setting.tokens, int(setting.top_k)});
    backend_ = std::make_unique<parallel::ScheduledExchange>(
        plan, parallel::Timetable(plan, int(setting.layers), int(setting.steps) + 2),
        std::move(carrier));
  }
  Tensor run(int layer, const Tensor& x, const nn::Gate& gate, const Phases&,
             const Loads&) override {
    if (layer == 0) ++step_;
    const int64_t before = sent();
    const nn::TokenView view{-1, {0}, {}, {{0, {0, x.size(0)}}}, {}};
    const nn::MoeCall call{layer, {step_, int(setting.steps) + 2, step_ == 0, false}, view};
    const Tensor output = backend_->run(call, x, gate, all.weights, log_);
    traffic_.sent(sent() - before);
    return output;
  }
  void keep(bool) override {}
  std::vector<Span>& spans() override { return spans_; }

 private:
  int64_t sent() const {
    int64_t bytes = 0;
    for (const auto& [key, entry] : world_.ledger().entries())
      if (key.first == "dispatch" || key.first == "combine") bytes += entry.bytes;
    return bytes;
  }
  comm::Communicator& world_;
  Traffic& traffic_;
  std::unique_ptr<nn::ExpertBackend> backend_;
  nn::MoeLog log_;
  int step_ = -1;
  std::vector<Span> spans_;
};

}  // namespace tessera::bench
