#include "parallel/experts/stale_results.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using nn::Segment;
using nn::Segments;
using nn::Tensor;

namespace {

// The tokens of `segments` outside `excluded`.
Segments without(const Segments& segments, const Segments& excluded) {
  Segments rest = segments;
  for (const Segment& removed : excluded) {
    Segments next;
    for (const Segment& s : rest) {
      if (s.sequence != removed.sequence || s.ids.end <= removed.ids.begin ||
          removed.ids.end <= s.ids.begin) {
        next.push_back(s);
        continue;
      }
      if (s.ids.begin < removed.ids.begin)
        next.push_back({s.sequence, {s.ids.begin, removed.ids.begin}});
      if (removed.ids.end < s.ids.end) next.push_back({s.sequence, {removed.ids.end, s.ids.end}});
    }
    rest = std::move(next);
  }
  return rest;
}

// The number of consecutive tokens from (sequence, id) on in a call, and their position; 0 if
// absent.
std::pair<int64_t, int64_t> run_at(const CallResults& call, int sequence, int64_t id) {
  int64_t at = 0;
  for (const Segment& s : call.segments) {
    if (s.sequence == sequence && s.ids.begin <= id && id < s.ids.end)
      return {s.ids.end - id, at + id - s.ids.begin};
    at += s.ids.size();
  }
  return {0, 0};
}

}  // namespace

void CallResults::reuse(int64_t assignment, const CallResults& call, int64_t old) {
  if (reused.empty() || reused.back().call != &call) reused.push_back({&call, {}, {}});
  reused.back().to.push_back(static_cast<int32_t>(assignment));
  reused.back().from.push_back(static_cast<int32_t>(old));
  sources[static_cast<size_t>(assignment)] = call.sources[static_cast<size_t>(old)];
}

int64_t CallResults::bytes() const {
  return (tokens.defined() ? tokens.bytes() : 0) + (rows.defined() ? rows.bytes() : 0) +
         (flight ? flight->bytes() : 0);
}

CallResults& StaleResults::launch(int step, const Segments& segments) {
  CallResults& call = steps_[step].emplace_back();
  call.segments = call.needed = segments;
  return call;
}

std::vector<KeptToken> StaleResults::find(int step, const Segments& segments) {
  std::vector<KeptToken> tokens;
  for (const Segment& s : segments)
    for (int64_t id = s.ids.begin; id < s.ids.end;) {
      CallResults* holder = nullptr;
      int64_t count = 0, at = 0;
      auto& calls = steps_[step];  // the latest among equals
      for (auto call = calls.rbegin(); call != calls.rend() && count == 0; ++call) {
        std::tie(count, at) = run_at(*call, s.sequence, id);
        holder = &*call;
      }
      require(count > 0, ErrorCode::rank, "step {} made no expert results of sequence {}, token {}",
              step, s.sequence, id);
      for (const int64_t end = std::min(id + count, s.ids.end); id < end; ++id)
        tokens.push_back({holder, at++});
    }
  return tokens;
}

Tensor StaleResults::read(int step, const Segments& segments, int64_t rows_per_token,
                          const Tensor& like,
                          const std::function<Tensor(const CallResults&)>& part) {
  const auto& calls = steps_[step];
  const auto same = std::find_if(calls.rbegin(), calls.rend(), [&](const CallResults& call) {
    return call.segments == segments;
  });
  if (same != calls.rend()) return part(*same);
  const std::vector<KeptToken> tokens = find(step, segments);
  const Tensor rows =
      Tensor::empty({static_cast<int64_t>(tokens.size()) * rows_per_token, like.size(1)},
                    like.dtype(), like.device(), tensor::MemoryClass::buffers);
  for (const CallResults& call : calls) {
    std::vector<int32_t> from, to;
    for (size_t t = 0; t < tokens.size(); ++t)
      for (int64_t j = 0; j < rows_per_token && tokens[t].call == &call; ++j) {
        from.push_back(static_cast<int32_t>(tokens[t].token * rows_per_token + j));
        to.push_back(static_cast<int32_t>(static_cast<int64_t>(t) * rows_per_token + j));
      }
    if (!to.empty()) ops::move_rows(part(call), from, rows, to);
  }
  return rows;
}

void StaleResults::forget(int lowest, const Segments& segments) {
  for (auto step = steps_.begin(); step != steps_.end() && step->first < lowest;) {
    for (CallResults& call : step->second) call.needed = without(call.needed, segments);
    std::erase_if(step->second, [](const CallResults& call) { return call.needed.empty(); });
    step = step->second.empty() ? steps_.erase(step) : std::next(step);
  }
}

int StaleResults::needed(int lowest) const {
  for (auto at = steps_.rbegin(); at != steps_.rend() && at->first >= lowest;
       ++at)  // links go back
    for (const CallResults& call : at->second)
      if (!call.rows.defined() && !call.reused.empty()) lowest = std::min(lowest, at->first - 1);
  return lowest;
}

int64_t StaleResults::bytes() const {
  int64_t bytes = 0;
  for (const auto& [step, calls] : steps_)
    for (const CallResults& call : calls) bytes += call.bytes();
  return bytes;
}

}  // namespace tessera::parallel
