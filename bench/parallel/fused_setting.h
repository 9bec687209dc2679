#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "nn/moe/policy.h"
#include "ops/experts.h"
#include "parallel/experts/exchange.h"

namespace tessera::bench {

using tensor::DType;
using tensor::Tensor;

/// A cell of the benchmark: words NAME=VALUE.
struct Setting {
  int64_t ranks = 8, workers = 1, layers = 1, steps = 10;
  int64_t tokens = 1024;  ///< tokens of a rank
  int64_t experts = 64, hidden = 32, ffn = 16, top_k = 2;
  int64_t tile = 64, window = 0;   ///< rows; tiles of a run, 0: all
  int64_t parts = 1;               ///< parts of a tile's products
  double low_ms = 0, high_ms = 0;  ///< duration of each phase of a rank, drawn for each step
  double mbytes = 0;               ///< MB/s of a rank's link; 0: memory only
  double gate_ms = 0, row_us = 0;  ///< added time of a gate, and of a row of an expert
  double attention_low_ms = 0,
         attention_high_ms = 0;  ///< time of a rank before each layer, drawn for each step
  std::string skew = "uniform";  ///< or zipf (1 / rank of the expert), or one
  std::string dtype = "f32", trace;
  std::string transport = "threads";  ///< or mpi: ranks of mpirun, and links as they are
  std::vector<std::string> ways{"fused", "bulk", "padded", "2 pieces", "4 pieces"};

  DType type() const { return dtype == "bf16" ? DType::bf16 : DType::f32; }
  int64_t row_bytes() const { return hidden * size_of(type()); }
  std::vector<int> owner() const {
    return parallel::experts_in_blocks(static_cast<int>(experts), static_cast<int>(ranks));
  }
};

inline void read(const std::string& word, Setting& setting) {
  const size_t at = word.find('=');
  const std::string name = word.substr(0, at), value = at == word.npos ? "" : word.substr(at + 1);
  const auto number = [&](auto& to) {
    const char* const end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, to);
    if (error != std::errc() || rest != end || to < 0)
      throw Error(ErrorCode::usage, fmt::format("'{}': expected a number", word));
  };
  const std::pair<const char*, int64_t&> whole[] = {
      {"ranks", setting.ranks},   {"workers", setting.workers}, {"layers", setting.layers},
      {"steps", setting.steps},   {"tokens", setting.tokens},   {"experts", setting.experts},
      {"hidden", setting.hidden}, {"ffn", setting.ffn},         {"top-k", setting.top_k},
      {"tile", setting.tile},     {"window", setting.window},   {"parts", setting.parts}};
  const std::pair<const char*, double&> real[] = {{"low-ms", setting.low_ms},
                                                  {"high-ms", setting.high_ms},
                                                  {"mbytes", setting.mbytes},
                                                  {"gate-ms", setting.gate_ms},
                                                  {"attention-low-ms", setting.attention_low_ms},
                                                  {"attention-high-ms", setting.attention_high_ms},
                                                  {"row-us", setting.row_us}};
  for (const auto& [option, to] : whole)
    if (name == option) return number(to);
  for (const auto& [option, to] : real)
    if (name == option) return number(to);
  if (name == "skew" && (value == "uniform" || value == "zipf" || value == "one")) {
    setting.skew = value;
  } else if (name == "dtype" && (value == "f32" || value == "bf16")) {
    setting.dtype = value;
  } else if (name == "transport" && (value == "threads" || value == "mpi")) {
    setting.transport = value;
  } else if (name == "trace") {
    setting.trace = value;
  } else if (name == "ways") {
    setting.ways.clear();
    for (size_t begin = 0, end = 0; end != value.npos; begin = end + 1) {
      end = value.find(',', begin);
      setting.ways.push_back(value.substr(begin, end == value.npos ? end : end - begin));
    }
  } else {
    throw Error(
        ErrorCode::usage,
        fmt::format("'{}': expected ranks, workers, layers, steps, tokens, experts, hidden, "
                    "ffn, top-k, tile, window, parts, low-ms, high-ms, mbytes, "
                    "gate-ms, row-us, attention-low-ms, attention-high-ms, "
                    "skew=uniform|zipf|one, dtype=f32|bf16, transport=threads|mpi, trace=FILE or "
                    "ways=fused,bulk,padded,2 pieces,4 pieces,stale fused,stale bulk",
                    word));
  }
}

/// Routing of a layer: drawn once, the same for all steps and ways.
struct Routes {
  std::vector<Tensor> ids;                   ///< by rank: [tokens, top_k]
  std::vector<std::vector<int64_t>> counts;  ///< by rank and expert
  int64_t capacity = 0;                      ///< largest number of rows from a rank for an expert

  Routes(const Setting& setting, int layer) : counts(static_cast<size_t>(setting.ranks)) {
    std::mt19937 random(static_cast<uint32_t>(layer) + 1);
    std::vector<double> shares;
    for (int64_t e = 0; e < setting.experts; ++e)
      shares.push_back(setting.skew == "zipf"  ? 1 / double(e + 1)
                       : setting.skew == "one" ? e < setting.top_k
                                               : 1);
    std::discrete_distribution<int32_t> choice(shares.begin(), shares.end());
    for (auto& of_rank : counts) {
      of_rank.resize(size_t(setting.experts));
      std::vector<int32_t> expert_ids;
      for (int64_t t = 0; t < setting.tokens; ++t)
        for (int64_t k = 0; k < setting.top_k; ++k) {
          int32_t e = choice(random);
          while (std::find(expert_ids.end() - k, expert_ids.end(), e) != expert_ids.end())
            e = choice(random);
          expert_ids.push_back(e);
          capacity = std::max(capacity, ++of_rank[size_t(e)]);
        }
      ids.push_back(
          Tensor::from(std::span<const int32_t>(expert_ids), {setting.tokens, setting.top_k}));
    }
  }
};

/// Rows of a rank in a layer: sent to others, computed, sent back to others.
struct Loads {
  int64_t out = 0, computed = 0, back = 0;
};
inline std::vector<Loads> loads_of(const Setting& setting, const Routes& routes, bool padded) {
  const std::vector<int> owner = setting.owner();
  std::vector<Loads> loads(size_t(setting.ranks));
  for (size_t r = 0; r < loads.size(); ++r)
    for (size_t e = 0; e < owner.size(); ++e) {
      const auto to = size_t(owner[e]);
      const int64_t rows = padded ? routes.capacity : routes.counts[r][e];
      loads[to].computed += rows;
      if (to != r) loads[r].out += rows, loads[to].back += rows;
    }
  return loads;
}

/// Seconds of a rank's phases in a layer.
struct Phases {
  double gate = 0, dispatch = 0, expert = 0, combine = 0;
  double sum() const { return gate + dispatch + expert + combine; }
};
/// Phases by layer and rank, with the costs of links and rows.
inline std::vector<std::vector<Phases>> phases_of(const Setting& setting,
                                                  const std::vector<std::vector<Loads>>& loads,
                                                  int step) {
  std::mt19937 random(uint32_t(step) + 77);
  std::uniform_real_distribution<double> draw(setting.low_ms / 1e3, setting.high_ms / 1e3);
  const double byte = setting.mbytes > 0 ? 1e-6 / setting.mbytes : 0;
  std::vector<std::vector<Phases>> result;
  for (const auto& layer : loads) {
    auto& phases = result.emplace_back();
    for (const Loads& rank : layer) {
      Phases& p = phases.emplace_back();
      p.gate = draw(random) + setting.gate_ms / 1e3;
      p.dispatch = draw(random) + double(rank.out * setting.row_bytes()) * byte;
      p.expert = draw(random) + double(rank.computed) * setting.row_us / 1e6;
      p.combine = draw(random) + double(rank.back * setting.row_bytes()) * byte;
    }
  }
  return result;
}

/// Seconds of a rank before each layer of a step.
inline double attention_of(const Setting& setting, int step, int layer, int rank) {
  std::mt19937 random(uint32_t(((step + 7) * 131 + layer) * 131 + rank));
  return std::uniform_real_distribution<double>(setting.attention_low_ms / 1e3,
                                                setting.attention_high_ms / 1e3)(random);
}

/// Lower bound of all ways, and the cost of waiting for all ranks at each phase: seconds of a step.
struct Bounds {
  double max_of_sums = 0, sum_of_maxima = 0, busiest = 0;
};
inline Bounds bounds_of(const std::vector<std::vector<Phases>>& layers) {
  Bounds bounds;
  std::vector<double> sums(layers[0].size()), cores(sums), links(sums);
  for (const auto& layer : layers) {
    Phases most;
    for (size_t r = 0; r < layer.size(); ++r) {
      const Phases& p = layer[r];
      sums[r] += p.sum();
      cores[r] += p.gate + p.expert;
      links[r] += p.dispatch + p.combine;
      most.gate = std::max(most.gate, p.gate);
      most.dispatch = std::max(most.dispatch, p.dispatch);
      most.expert = std::max(most.expert, p.expert);
      most.combine = std::max(most.combine, p.combine);
    }
    bounds.sum_of_maxima += most.sum();
  }
  const auto max = [](const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
  };
  bounds.max_of_sums = max(sums);
  bounds.busiest = std::max(max(cores), max(links));
  return bounds;
}

}  // namespace tessera::bench
