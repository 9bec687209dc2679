#include "nn/moe/selection_policy.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "nn/moe/expert_selection.h"
#include "ops/selection.h"

namespace tessera::nn {
namespace {

// Which tokens share a coreset, and how many coresets there are.
struct Sharing {
  std::vector<int32_t> group_of;
  int groups = 0;
};

using Tokens = std::map<int, Range>;  // by sequence

// Those of a segment that are under the rule.
Range ruled_of(const Segment& s, const Tokens& restricted) {
  const auto held = restricted.find(s.sequence);
  if (held == restricted.end()) return {};
  const Range ruled{std::max(s.ids.begin, held->second.begin),
                    std::min(s.ids.end, held->second.end)};
  return ruled.end > ruled.begin ? ruled : Range{};
}

// A sequence's group is its place among the restricted sequences, whichever of them this rank sees.
Sharing by_sequence(const Segments& body, const Tokens& restricted, bool batch) {
  const int sequences = static_cast<int>(restricted.size());
  Sharing sharing{{}, batch ? std::min(1, sequences) : sequences};
  for (const Segment& s : body) {
    const auto held = restricted.find(s.sequence);
    const auto place = static_cast<int32_t>(std::distance(restricted.begin(), held));
    const Range ruled = ruled_of(s, restricted);
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id)
      sharing.group_of.push_back(id < ruled.begin || id >= ruled.end ? -1 : batch ? 0 : place);
  }
  return sharing;
}

// Runs of `block` ids of a sequence; all ranks number those of the whole pass alike.
Sharing by_block(const TokenView& view, const Tokens& restricted, int block) {
  std::map<std::pair<int, int64_t>, int32_t> places;
  for (const Segment& s : view.peers ? view.peers->tokens() : view.body) {
    const Range ruled = ruled_of(s, restricted);
    for (int64_t b = ruled.begin / block; b * block < ruled.end; ++b)
      places.try_emplace({s.sequence, b}, static_cast<int32_t>(places.size()));
  }
  Sharing sharing{{}, static_cast<int>(places.size())};
  for (const Segment& s : view.body) {
    const Range ruled = ruled_of(s, restricted);
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id)
      sharing.group_of.push_back(
          id < ruled.begin || id >= ruled.end ? -1 : places.at({s.sequence, id / block}));
  }
  return sharing;
}

}  // namespace

ops::Routing SelectionPolicy::choose(const MoeCall& call, const Tensor& tokens,
                                     const Tensor& logits,
                                     const ops::RoutingOptions& router) const {
  const Sharing sharing = rule_.block > 0 ? by_block(call.view, restricted_, rule_.block)
                                          : by_sequence(call.view.body, restricted_, rule_.batch);
  SelectionScope scope{sharing.group_of, {}, call.view.peers, sharing.groups};
  if (rule_.method == SelectionRule::Method::mc) scope.importance = ops::magnitudes(tokens);
  return select_experts(logits, router, rule_, scope);
}

}  // namespace tessera::nn
