#pragma once

#include <string>
#include <vector>

namespace tessera {

/// How a request is spread over ranks: numbers, nothing else.
struct Plan {
  int data = 1;        ///< groups of pictures
  int cfg = 1;         ///< guidance branches apart: 1 or 2
  int pipefusion = 1;  ///< stages of blocks (PipeFusion, Fang et al. 2024)
  int patches = 1;     ///< pieces of a picture that pass the stages; a count, not an axis
  int ulysses = 1;     ///< shards of attention heads (DeepSpeed-Ulysses)
  int ring = 1;        ///< shards of keys and values (Ring Attention)
  int tensor = 1;      ///< shards of the weights
  int expert = 1;      ///< ranks that share a layer's experts; laid over the others
  int warmup = 1;      ///< first steps in which nothing is stale, >= 1

  /// Ranks that the plan needs.
  int world() const { return data * cfg * pipefusion * ulysses * ring * tensor; }
  /// Whether everything read in a step is computed in it.
  bool fresh(int step) const { return step < warmup; }
  bool operator==(const Plan&) const = default;
};

/// Reads "name=value,name=value" over the defaults. Throws Error(plan) that names an unknown,
/// doubled or malformed entry and lists what is known.
Plan parse_plan(const std::string& text);
/// The entries that differ from the defaults, as parse_plan reads them; "" for one rank.
std::string to_string(const Plan& plan);
/// Why a plan cannot run on `ranks` ranks, one sentence each; empty: it can.
std::vector<std::string> problems(const Plan& plan, int ranks);

}  // namespace tessera
