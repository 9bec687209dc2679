#include "nn/moe/sequence_usage.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::nn {

void SequenceUsage::see(const MoeWork& work) {
  if (work.tokens.is_meta()) return;
  const TokenView& view = work.call.view;
  calls_.push_back({work.call.site, view.sequences, view.body, view.peers, work.routing.ids,
                    work.weights.experts()});
}

// Appends the counts of a call by sequence, in the same form on all ranks.
void SequenceUsage::count(const Call& call, const Tensor& ids, std::vector<Counts>& counts,
                          std::vector<int>& sequences) {
  std::map<int, size_t> at;
  const auto counts_of = [&](int sequence) -> Counts& {
    if (at.emplace(sequence, counts.size()).second) {
      counts.emplace_back(static_cast<size_t>(call.experts) + 1);
      sequences.push_back(sequence);
    }
    return counts[at.at(sequence)];
  };
  for (int sequence : call.sequences) counts_of(sequence);
  int64_t token = 0;
  for (const Segment& s : call.body) {
    Counts& own_counts = counts_of(s.sequence);
    own_counts[0] += s.ids.size();
    for (const int64_t end = token + s.ids.size(); token < end; ++token)
      for (int64_t j = 0; j < ids.size(1); ++j)
        if (const int32_t e = ids.row<int32_t>(token)[j]; e >= 0)
          own_counts[static_cast<size_t>(e) + 1] = 1;
  }
}

void SequenceUsage::settle() {
  if (calls_.empty()) return;
  std::vector<Counts> counts;
  std::vector<int> sequences;
  std::vector<size_t> ends;  // ends of the calls
  std::vector<Tensor> ids;
  for (const Call& call : calls_) ids.push_back(call.ids);
  ids = tensor::to_host(ids);
  for (size_t call = 0; call < calls_.size(); ++call) {
    count(calls_[call], ids[call], counts, sequences);
    ends.push_back(counts.size());
  }
  if (SequencePeers* peers = calls_.front().peers) {
    std::vector<int64_t> totals;
    for (const Counts& c : counts) totals.insert(totals.end(), c.begin(), c.end());
    peers->sum(totals);
    auto from = totals.begin();
    for (Counts& c : counts) {
      std::copy_n(from, c.size(), c.begin());
      from += static_cast<std::ptrdiff_t>(c.size());
    }
  }
  for (size_t call = 0, i = 0; call < calls_.size(); ++call) {
    std::vector<bool> any(static_cast<size_t>(calls_[call].experts));
    for (; i < ends[call]; ++i) {
      const auto flags = counts[i].begin() + 1;
      uses_.push_back({calls_[call].site, sequences[i], counts[i][0],
                       std::count_if(flags, counts[i].end(), [](int64_t f) { return f != 0; })});
      for (size_t e = 0; e < any.size(); ++e) any[e] = any[e] || flags[std::ptrdiff_t(e)] != 0;
    }
    experts_read_ += std::count(any.begin(), any.end(), true);
  }
  calls_.clear();
}

std::vector<SequenceUsage::Use> SequenceUsage::take() {
  settle();
  return std::exchange(uses_, {});
}

int64_t SequenceUsage::experts_read() {
  settle();
  return experts_read_;
}

}  // namespace tessera::nn
