// Compares MoE layers over ranks that are threads: as a fused operator, by bulk exchanges, by the
// same padded to a capacity (DeepSpeed) and in overlapping pieces (FasterMoE, Tutel), in turn in a
// single process. Delays of gates, expert rows and links may be injected as sleeps, so the number
// of
// cores does not matter.
//   fused_bench [NAME=VALUE ...]      one cell, a JSON line a way; names: fused_setting.h
//   mpirun -np N fused_bench transport=mpi ranks=N ...      the same, ranks as processes
#include <unistd.h>

#include <cstdio>
#include <map>
#include <optional>

#include "comm/mpi/launch.h"
#include "comm/threads/launch.h"
#include "fused_ways.h"

namespace {

using namespace tessera;
using namespace tessera::bench;

// Measurements of a way over all ranks.
struct Measurement {
  explicit Measurement(const Setting& setting)
      : traffic(setting.ranks),
        begin(size_t(setting.steps * setting.ranks)),
        end(begin),
        waits(begin.size()),
        wrong(size_t(setting.ranks)) {}
  Traffic traffic;
  std::vector<Clock::time_point> begin, end;  // by step and rank
  std::vector<double> waits;                  // by step and rank: idle seconds of workers
  std::vector<int> wrong;                     // layers of a rank with wrong results
  std::vector<std::vector<Span>> spans;       // by rank, for the last step
  // Counters of the operator, over all ranks.
  int64_t tasks = 0, idle_while_ready = 0, tiled_layers = 0, remote = 0, overlapped = 0,
          heap_bytes = 0;
  double busy = 0, first = 0, first_remote = 0;

  std::vector<double> seconds(int64_t ranks) const {
    std::vector<double> result;
    for (auto b = begin.begin(), e = end.begin(); b != begin.end(); b += ranks, e += ranks)
      result.push_back(
          bench::seconds(*std::max_element(e, e + ranks) - *std::min_element(b, b + ranks)));
    return result;
  }
};

// A cell: data shared by all ways and ranks.
struct Cell {
  explicit Cell(const Setting& cell_setting);
  void run(comm::Communicator& world);
  std::unique_ptr<Way> make(const std::string& way, comm::Communicator& world,
                            Measurement& measurement) const;
  void measure(comm::Communicator& world, Way& way, const std::string& name, int step);
  void add(const FusedWay& way, Measurement& measurement);
  void gather(comm::Communicator& world);

  const Setting setting;
  const Layers layers;
  std::vector<std::vector<Loads>> loads[2];  // unpadded, padded: by layer and rank
  std::map<std::string, Measurement> measurements;
  std::mutex mutex;
};

Cell::Cell(const Setting& cell_setting) : setting(cell_setting), layers(cell_setting) {
  for (const bool padded : {false, true})
    for (const Routes& routes : layers.routes)
      loads[padded].push_back(loads_of(setting, routes, padded));
  for (const std::string& way : setting.ways) measurements.emplace(way, setting);
  for (auto& [way, measurement] : measurements) measurement.spans.resize(size_t(setting.ranks));
}

std::unique_ptr<Way> Cell::make(const std::string& way, comm::Communicator& world,
                                Measurement& measurement) const {
  const bool linked = setting.mbytes > 0 || setting.high_ms > 0;
  if (way == "fused")
    return std::make_unique<FusedWay>(setting, layers, world, measurement.traffic, linked);
  if (way == "stale fused" || way == "stale bulk") {
    if (linked || setting.row_us > 0)
      throw Error(ErrorCode::usage, way + " takes no simulated links, rows and phases");
    return std::make_unique<StaleWay>(setting, layers, world, measurement.traffic,
                                      way == "stale fused");
  }
  const std::map<std::string, int> pieces{
      {"bulk", 1}, {"padded", 1}, {"2 pieces", 2}, {"4 pieces", 4}};
  const auto it = pieces.find(way);
  if (it == pieces.end()) throw Error(ErrorCode::usage, "there is no way '" + way + "'");
  return std::make_unique<ExchangeWay>(setting, layers, world, measurement.traffic, linked,
                                       it->second, way == "padded");
}

// Step -1 is a warm-up and not counted: touches memory and checks results.
void Cell::measure(comm::Communicator& world, Way& way, const std::string& name, int step) {
  Measurement& measurement = measurements.at(name);
  const auto r = size_t(world.rank());
  const auto& own_loads = loads[name == "padded"];
  const auto phases = phases_of(setting, own_loads, step);
  const Tensor x = random_tensor({setting.tokens, setting.hidden}, setting.type(), uint32_t(r));
  DrawnPolicy policy(layers, world.rank());
  const nn::TokenView view;
  std::vector<Tensor> outputs;
  way.keep(!setting.trace.empty() && step + 1 == setting.steps);
  comm::barrier(world);
  if (step == 0 && (r == 0 || setting.transport == "mpi")) measurement.traffic.count_anew();
  if (step == 0) way.count_anew();
  comm::barrier(world);
  const size_t at = size_t(std::max(step, 0) * setting.ranks) + r;
  const double waited = way.waited;
  measurement.begin[at] = Clock::now();
  for (int l = 0; l < setting.layers; ++l) {
    sleep(attention_of(setting, step, l, world.rank()));
    policy.gate_seconds = phases[size_t(l)][r].gate;
    const nn::MoeCall call{l, {step, 1, true, true}, view};
    const nn::Gate gate(layers.router, policy, call);
    outputs.push_back(way.run(l, x, gate, phases[size_t(l)][r], own_loads[size_t(l)][r]));
  }
  measurement.end[at] = Clock::now();
  measurement.waits[at] = way.waited - waited;
  comm::barrier(world);
  for (int l = 0; l < setting.layers && step < 0; ++l) {
    policy.gate_seconds = 0;
    const nn::MoeCall call{l, {step, 1, true, true}, view};
    const Tensor want =
        ops::experts(x, nn::Gate(layers.router, policy, call)(x), *layers.weights.routed);
    measurement.wrong[r] += outputs[size_t(l)].to_floats() != want.to_floats();
  }
}

void Cell::add(const FusedWay& way, Measurement& measurement) {
  const std::lock_guard lock(mutex);
  measurement.tasks += way.trace.tasks;
  measurement.idle_while_ready += way.trace.idle_while_ready;
  measurement.busy += way.trace.busy;
  measurement.first += way.first;
  measurement.tiled_layers += way.tiled_layers;
  measurement.first_remote += way.first_remote;
  measurement.remote += way.remote;
  measurement.overlapped += way.overlapped;
  measurement.heap_bytes = way.heap_bytes();
}

void Cell::run(comm::Communicator& world) {
  base::ThreadPool pool(static_cast<int>(setting.workers));
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bound(scope);
  std::vector<std::unique_ptr<Way>> ways;
  for (const std::string& name : setting.ways)
    ways.push_back(make(name, world, measurements.at(name)));
  for (int step = -1; step < setting.steps; ++step)
    for (size_t i = 0; i < ways.size(); ++i) {  // a different way first in each step
      const size_t w = (i + size_t(step + 1)) % ways.size();
      measure(world, *ways[w], setting.ways[w], step);
    }
  for (size_t w = 0; w < ways.size(); ++w) {
    Measurement& measurement = measurements.at(setting.ways[w]);
    measurement.spans[size_t(world.rank())] = std::move(ways[w]->spans());
    if (const auto* fused = dynamic_cast<const FusedWay*>(ways[w].get())) add(*fused, measurement);
  }
  comm::barrier(world);  // late messages have arrived
}

// Brings together the numbers of ranks in other processes of this machine, which share its clock.
void Cell::gather(comm::Communicator& world) {
  const comm::Tag tag{"gather", -1, TrafficKind::control};
  for (auto& [way, measurement] : measurements) {
    std::vector<int64_t> sums{measurement.traffic.payload(),
                              measurement.tasks,
                              measurement.idle_while_ready,
                              measurement.tiled_layers,
                              measurement.remote,
                              measurement.overlapped,
                              int64_t(1e9 * measurement.busy),
                              int64_t(1e9 * measurement.first),
                              int64_t(1e9 * measurement.first_remote)};
    const size_t fixed = sums.size();
    for (size_t i = 0; i < measurement.begin.size(); ++i) {
      sums.push_back(measurement.begin[i].time_since_epoch().count());
      sums.push_back(measurement.end[i].time_since_epoch().count());
      sums.push_back(int64_t(1e9 * measurement.waits[i]));
    }
    for (const int wrong : measurement.wrong) sums.push_back(wrong);
    comm::all_reduce(world, std::span(sums), tag);
    measurement.traffic.count_anew();
    measurement.traffic.sent(sums[0]);
    measurement.tasks = sums[1], measurement.idle_while_ready = sums[2],
    measurement.tiled_layers = sums[3];
    measurement.remote = sums[4], measurement.overlapped = sums[5],
    measurement.busy = double(sums[6]) / 1e9;
    measurement.first = double(sums[7]) / 1e9, measurement.first_remote = double(sums[8]) / 1e9;
    for (size_t i = 0; i < measurement.begin.size(); ++i) {
      measurement.begin[i] = Clock::time_point(Clock::duration(sums[fixed + 3 * i]));
      measurement.end[i] = Clock::time_point(Clock::duration(sums[fixed + 3 * i + 1]));
      measurement.waits[i] = double(sums[fixed + 3 * i + 2]) / 1e9;
    }
    for (size_t r = 0; r < measurement.wrong.size(); ++r)
      measurement.wrong[r] = int(sums[fixed + 3 * measurement.begin.size() + r]);
  }
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}
double quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + int64_t(share * double(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Ratio of two times, step by step: the mean, and the ends of its 95 % interval.
std::string ratio(const std::vector<double>& values, const std::vector<double>& to) {
  std::vector<double> logs;
  for (size_t i = 0; i < values.size(); ++i) logs.push_back(std::log(values[i] / to[i]));
  const double middle = mean(logs);
  double squares = 0;
  for (const double entry : logs) squares += (entry - middle) * (entry - middle);
  const double n = double(logs.size());
  const double half = n > 1 ? 1.96 * std::sqrt(squares / (n - 1) / n) : 0;
  return fmt::format("[{:.3f},{:.3f},{:.3f}]", std::exp(middle - half), std::exp(middle),
                     std::exp(middle + half));
}

// Compares the time with the lower bound of all ways, and with the cost of waiting for all ranks at
// each phase.
std::string bounds(const Cell& cell, bool padded) {
  Bounds sum;
  for (int step = 0; step < cell.setting.steps; ++step) {
    const Bounds step_bounds = bounds_of(phases_of(cell.setting, cell.loads[padded], step));
    sum.max_of_sums += step_bounds.max_of_sums / double(cell.setting.steps);
    sum.sum_of_maxima += step_bounds.sum_of_maxima / double(cell.setting.steps);
    sum.busiest += step_bounds.busiest / double(cell.setting.steps);
  }
  return fmt::format(",\"max_of_sums\":{:.6f},\"sum_of_maxima\":{:.6f},\"busiest\":{:.6f}",
                     sum.max_of_sums, sum.sum_of_maxima, sum.busiest);
}

std::string line(const Cell& cell, const std::string& way) {
  const Setting& setting = cell.setting;
  const Measurement& measurement = cell.measurements.at(way);
  const std::vector<double> seconds = measurement.seconds(setting.ranks);
  std::string text = fmt::format(
      "{{\"bench\":\"fused\",\"how\":\"{}\",\"ranks\":{},\"workers\":{},\"layers\":{},\"tokens\":{}"
      ","
      "\"experts\":{},\"hidden\":{},\"ffn\":{},\"top_k\":{},\"skew\":\"{}\",\"dtype\":\"{}\","
      "\"tile\":{},\"window\":{},\"mbytes\":{},\"transport\":\"{}\",\"attention_low_ms\":{},"
      "\"attention_high_ms\":{},\"steps\":{},\"seconds\":{:.6f},\"p50\":{:.6f},"
      "\"p95\":{:.6f},\"wait_mean\":{:.6f},\"wait_p50\":{:.6f},\"wait_p95\":{:.6f},"
      "\"payload_bytes\":{},\"incast_bytes\":{},\"same_bits\":{}",
      way, setting.ranks, setting.workers, setting.layers, setting.tokens, setting.experts,
      setting.hidden, setting.ffn, setting.top_k, setting.skew, setting.dtype, setting.tile,
      setting.window, setting.mbytes, setting.transport, setting.attention_low_ms,
      setting.attention_high_ms, setting.steps, mean(seconds), quantile(seconds, 0.5),
      quantile(seconds, 0.95), mean(measurement.waits), quantile(measurement.waits, 0.5),
      quantile(measurement.waits, 0.95), measurement.traffic.payload() / setting.steps,
      measurement.traffic.most(), mean({measurement.wrong.begin(), measurement.wrong.end()}) == 0);
  if (setting.mbytes + setting.high_ms + setting.row_us + setting.gate_ms > 0)
    text += bounds(cell, way == "padded");
  if (way != "fused" && cell.measurements.contains("fused"))
    text +=
        ",\"over_fused\":" + ratio(seconds, cell.measurements.at("fused").seconds(setting.ranks));
  if (way == "fused")
    text += fmt::format(
        ",\"heap_bytes\":{},\"tasks\":{},\"utilisation\":{:.3f},\"idle_while_ready\":{},"
        "\"first_tile\":{:.6f},\"first_remote_tile\":{:.6f},\"overlapped\":\"{} of {}\"",
        measurement.heap_bytes, measurement.tasks / setting.steps,
        measurement.busy /
            (mean(seconds) * double(setting.steps * setting.ranks * setting.workers)),
        measurement.idle_while_ready,
        measurement.tiled_layers ? measurement.first / double(measurement.tiled_layers) : -1,
        measurement.remote ? measurement.first_remote / double(measurement.remote) : -1,
        measurement.overlapped, measurement.remote);
  return text + "}";
}

void write_trace(const Cell& cell) {
  ChromeTrace trace(cell.setting.trace);
  for (const auto& [way, measurement] : cell.measurements) {
    const auto last = measurement.begin.end() - cell.setting.ranks;
    const auto zero = *std::min_element(last, measurement.begin.end());
    for (size_t r = 0; r < measurement.spans.size(); ++r)
      trace.add(way, r, zero, measurement.spans[r]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Setting setting;
    for (int i = 1; i < argc; ++i) read(argv[i], setting);
    Cell cell(setting);
    if (setting.transport == "mpi") {
      comm::mpi::Options options;
      options.report = [](const Error& error) { std::fprintf(stderr, "%s\n", error.what()); };
      options.give_up = [](const Error& error) { _exit(static_cast<int>(error.code())); };
      comm::mpi::run(options, [&](comm::Communicator& world) {
        if (world.size() != setting.ranks)
          throw Error(ErrorCode::usage, fmt::format("ranks={} of {}", setting.ranks, world.size()));
        cell.run(world);
        cell.gather(world);
        for (const std::string& way : setting.ways)
          if (world.rank() == 0) std::puts(line(cell, way).c_str());
      });
      return 0;
    }
    comm::threads::run(static_cast<int>(setting.ranks), std::chrono::seconds(60),
                       [&](comm::Communicator& world) { cell.run(world); });
    for (const std::string& way : setting.ways) std::puts(line(cell, way).c_str());
    if (!setting.trace.empty()) write_trace(cell);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fused_bench: %s\n", e.what());
    return 1;
  }
}
