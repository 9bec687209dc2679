#include "nn/moe/selection_policy.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "nn/moe/expert_selection.h"
#include "ops/selection.h"

namespace tessera::nn {
namespace {

// The coreset of each token, and the number of coresets.
struct Sharing {
  std::vector<int32_t> group_of;
  int groups = 0;
};

using Tokens = std::map<int, std::vector<Range>>;  // by sequence

// Runs of a segment under the rule.
std::vector<Range> ruled_of(const Segment& s, const Tokens& restricted) {
  std::vector<Range> ranges;
  const auto it = restricted.find(s.sequence);
  if (it == restricted.end()) return ranges;
  for (const Range& run : it->second) {
    const Range part{std::max(s.ids.begin, run.begin), std::min(s.ids.end, run.end)};
    if (part.end > part.begin) ranges.push_back(part);
  }
  return ranges;
}

// The group of each token of a segment, -1 for tokens outside the rule.
template <class GroupOf>
void append_groups(const Segment& s, const Tokens& restricted, const GroupOf& group_of,
                   std::vector<int32_t>& groups) {
  const size_t first = groups.size();
  groups.resize(first + size_t(s.ids.size()), -1);
  for (const Range& run : ruled_of(s, restricted))
    for (int64_t id = run.begin; id < run.end; ++id)
      groups[first + size_t(id - s.ids.begin)] = group_of(id);
}

// A sequence's group is its place among the restricted sequences, on every rank.
Sharing by_sequence(const Segments& body, const Tokens& restricted, bool batch) {
  const int sequences = static_cast<int>(restricted.size());
  Sharing sharing{{}, batch ? std::min(1, sequences) : sequences};
  for (const Segment& s : body) {
    const auto it = restricted.find(s.sequence);
    const auto place = static_cast<int32_t>(std::distance(restricted.begin(), it));
    append_groups(
        s, restricted, [&](int64_t) { return batch ? 0 : place; }, sharing.group_of);
  }
  return sharing;
}

// Runs of `block` ids of a sequence; all ranks number the runs of the whole pass alike.
Sharing by_block(const TokenView& view, const Tokens& restricted, int block) {
  std::map<std::pair<int, int64_t>, int32_t> places;
  for (const Segment& s : view.peers ? view.peers->tokens() : view.body) {
    for (const Range& run : ruled_of(s, restricted))
      for (int64_t b = run.begin / block; b * block < run.end; ++b)
        places.try_emplace({s.sequence, b}, static_cast<int32_t>(places.size()));
  }
  Sharing sharing{{}, static_cast<int>(places.size())};
  for (const Segment& s : view.body)
    append_groups(
        s, restricted,
        [&](int64_t id) {
          return places.at({s.sequence, id / block});
        },
        sharing.group_of);
  return sharing;
}

}  // namespace

void SelectionPolicy::restrict_to(const std::map<int, Range>& tokens) {
  restricted_.clear();
  for (const auto& [sequence, run] : tokens) restricted_[sequence] = {run};
}

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
