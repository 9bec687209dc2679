#include "nn/selective_experts.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "nn/local.h"

namespace tessera::nn {
namespace {

// A row's group is its place among the restricted rows, whichever of them this rank sees.
std::vector<int32_t> groups_of(const TokenView& view, const std::set<int>& restricted, bool batch) {
  std::vector<int32_t> groups;
  for (const Segment& s : view.body) {
    const auto held = restricted.find(s.row);
    const auto place = static_cast<int32_t>(std::distance(restricted.begin(), held));
    const int32_t group = held == restricted.end() ? -1 : batch ? 0 : place;
    groups.insert(groups.end(), static_cast<size_t>(s.ids.size()), group);
  }
  return groups;
}

std::vector<float> magnitudes(const Tensor& tokens) {
  std::vector<float> sums(static_cast<size_t>(tokens.size(0)));
  const std::vector<float> values = tokens.to_floats();
  const auto width = static_cast<size_t>(tokens.size(1));
  for (size_t i = 0; i < values.size(); ++i) sums[i / width] += std::abs(values[i]);
  return sums;
}

}  // namespace

void SelectiveExperts::note(int site, const TokenView& view, const ops::Routing& routing,
                            size_t experts) {
  std::map<int, size_t> at;
  const auto note_of = [&](int row) {
    if (at.emplace(row, notes_.size()).second)
      notes_.push_back({calls_, site, row, std::vector<int64_t>(experts + 1)});
    return at.at(row);
  };
  ++calls_;
  const Tensor ids = routing.ids.to(tensor::Device::cpu);
  for (int row : view.rows) note_of(row);  // of all ranks alike
  int64_t token = 0;
  for (const Segment& s : view.body) {
    auto& counts = notes_[note_of(s.row)].counts;
    counts[0] += s.ids.size();
    for (const int64_t end = token + s.ids.size(); token < end; ++token)
      for (int64_t j = 0; j < ids.size(1); ++j)
        if (const int32_t e = ids.row<int32_t>(token)[j]; e >= 0)
          counts[static_cast<size_t>(e) + 1] = 1;
  }
}

// Notes become uses: of all ranks, if tokens are split.
void SelectiveExperts::settle() {
  if (notes_.empty()) return;
  if (SelectionPeers* peers = place().peers) {
    std::vector<int64_t> all;
    for (const Note& n : notes_) all.insert(all.end(), n.counts.begin(), n.counts.end());
    peers->sum(all);
    auto from = all.begin();
    for (Note& n : notes_) {
      std::copy_n(from, n.counts.size(), n.counts.begin());
      from += static_cast<std::ptrdiff_t>(n.counts.size());
    }
  }
  std::vector<bool> any;
  const auto distinct = [](const auto& flags, size_t skip) {
    return std::count_if(flags.begin() + static_cast<std::ptrdiff_t>(skip), flags.end(),
                         [](auto flag) { return flag != 0; });
  };
  for (size_t i = 0; i < notes_.size(); ++i) {
    const Note& n = notes_[i];
    any.resize(n.counts.size());
    for (size_t e = 1; e < n.counts.size(); ++e) any[e] = any[e] || n.counts[e] != 0;
    uses_.push_back({n.site, n.row, n.counts[0], distinct(n.counts, 1)});
    if (i + 1 < notes_.size() && notes_[i + 1].call == n.call) continue;
    experts_read_ += distinct(any, 1);
    any.clear();
  }
  notes_.clear();
}

std::vector<SelectiveExperts::Use> SelectiveExperts::take_uses() {
  settle();
  return std::exchange(uses_, {});
}

int64_t SelectiveExperts::experts_read() {
  settle();
  return experts_read_;
}

Tensor SelectiveExperts::run(int, const Tensor& tokens, const ops::Routing& routing,
                             const ExpertBank& bank) {
  return ops::experts(tokens, routing, bank->routed, shared_expert(tokens, *bank));
}

Tensor SelectiveExperts::apply(int site, const TokenView& view, const Tensor& tokens,
                               const Router& router, const ExpertBank& bank) {
  const Tensor logits = router.logits(tokens);
  const std::vector<int32_t> groups = groups_of(view, restricted_, rule_.batch);
  std::vector<float> importance;
  if (rule_.method == SelectionRule::Method::mc && !tokens.is_meta())
    importance = magnitudes(tokens);
  const Place mine = place();
  const int sets = rule_.batch ? std::min<int>(1, static_cast<int>(restricted_.size()))
                               : static_cast<int>(restricted_.size());
  const ops::Routing routing =
      select_experts(logits, router.options, rule_,
                     {groups, importance, mine.peers, sets, mine.first, mine.tokens});
  if (!tokens.is_meta()) note(site, view, routing, bank->routed.size());
  return run(site, tokens, routing, bank);
}

}  // namespace tessera::nn
