#include "parallel/stages.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using nn::Range;
using tensor::Tensor;

namespace {

constexpr double kMostSlower = 1.15;  // slower than a split by FLOPs
constexpr double kRounding = 1 + 1e-9;

struct Cut {
  double most;             // cost of a stage
  std::vector<int> sizes;  // blocks of each stage
};

// The split with the cheapest most costly stage, among splits with at most `limit` of another cost
// in each stage.
Cut cheapest(const std::vector<double>& costs, const std::vector<double>& limited, double limit,
             int stages) {
  // most[s][b]: the highest cost among s + 1 stages with the first b blocks; from[s][b]: the begin
  // of the last stage.
  const double none = std::numeric_limits<double>::infinity();
  const size_t count = costs.size() + 1;
  std::vector<std::vector<double>> most(static_cast<size_t>(stages),
                                        std::vector<double>(count, none));
  std::vector<std::vector<int>> from(static_cast<size_t>(stages), std::vector<int>(count, 0));
  for (size_t s = 0; s < most.size(); ++s)
    for (size_t b = s + 1; b < count; ++b) {
      double last = 0, other = 0;
      for (size_t begin = b; begin-- > s;) {
        last += costs[begin];
        other += limited[begin];
        if (other > limit * kRounding) break;
        const double before = s == 0 ? (begin == 0 ? 0 : none) : most[s - 1][begin];
        if (std::max(before, last) >= most[s][b]) continue;
        most[s][b] = std::max(before, last);
        from[s][b] = static_cast<int>(begin);
      }
    }
  std::vector<int> sizes(static_cast<size_t>(stages));
  auto end = static_cast<int>(costs.size());
  for (size_t s = sizes.size(); s-- > 0;) {
    sizes[s] = end - from[s][static_cast<size_t>(end)];
    end -= sizes[s];
  }
  return {most.back().back(), sizes};
}

}  // namespace

std::vector<int> balanced_stages(const std::vector<double>& flops, const std::vector<double>& bytes,
                                 int stages) {
  const auto blocks = static_cast<int>(flops.size());
  require(stages >= 1 && stages <= blocks && bytes.size() == flops.size(), ErrorCode::plan,
          "{} stages for {} blocks", stages, blocks);
  const double any = std::numeric_limits<double>::infinity();
  const double slowest = kMostSlower * cheapest(flops, bytes, any, stages).most;
  const double largest = cheapest(bytes, flops, slowest, stages).most;
  return cheapest(flops, bytes, largest, stages).sizes;
}

std::vector<Range> blocks_of_stages(const Plan& plan, int blocks) {
  std::vector<Range> ranges;
  int64_t begin = 0;
  for (int s = 0; s < plan.pipefusion; ++s) {
    const int64_t count = plan.stages.empty() ? nn::split({0, blocks}, plan.pipefusion, s).size()
                                              : plan.stages.at(static_cast<size_t>(s));
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

Stages::Stages(const nn::Geometry& geometry, std::vector<Range> blocks,
               std::unique_ptr<comm::Communicator> group)
    : skip_from_(geometry.skip_from),
      joint_(std::any_of(geometry.attention.begin(), geometry.attention.end(),
                         [](const nn::AttentionSite& site) { return site.joint; })),
      blocks_(std::move(blocks)),
      group_(std::move(group)) {}

int Stages::stage_of(int block) const {
  const auto holds = [&](const Range& r) { return block >= r.begin && block < r.end; };
  return static_cast<int>(std::find_if(blocks_.begin(), blocks_.end(), holds) - blocks_.begin());
}

// Or -1.
int Stages::reader_of(int block) const {
  const auto reader = std::find(skip_from_.begin(), skip_from_.end(), block);
  return reader == skip_from_.end() ? -1 : static_cast<int>(reader - skip_from_.begin());
}

// Skips leave before their hidden states.
void Stages::expect() {
  const Range& own_blocks = blocks_[static_cast<size_t>(group_->rank())];
  Arrivals next;
  for (int block = 0; block < own_blocks.begin; ++block) {
    const int reader = reader_of(block);
    if (reader >= own_blocks.begin && reader < own_blocks.end)
      next.skips.emplace(block, group_->receive(stage_of(block), {"skip", block}));
  }
  next.stream = group_->receive(group_->rank() - 1, {"hidden", static_cast<int>(own_blocks.begin)});
  arrivals_.push_back(std::move(next));
}

void Stages::begin(bool call_follows) {
  if (first()) return;
  if (arrivals_.empty()) expect();
  if (call_follows) expect();
}

nn::Hidden Stages::arrived(const nn::TokenView& view) {
  const Tensor rows = arrivals_.front().stream.wait();
  skips_ = std::move(arrivals_.front().skips);
  arrivals_.pop_front();
  const int64_t text = joint_ ? nn::token_count(view.prefix) : 0;
  require(rows.rank() == 2 && rows.size(0) == text + nn::token_count(view.body), ErrorCode::rank,
          "stage {} was handed {} for {} tokens", group_->rank(), rows.shape().str(),
          text + nn::token_count(view.body));
  nn::Hidden hidden;
  if (joint_) hidden.tokens.prefix = rows.slice(0, 0, text);
  hidden.tokens.body = rows.slice(0, text, rows.size(0));
  return hidden;
}

void Stages::bring(int block, nn::Hidden& hidden) {
  if (skips_.empty()) return;
  const auto it = skips_.find(skip_from_.at(static_cast<size_t>(block)));
  if (it == skips_.end()) return;
  hidden.skips[it->first] = it->second.wait();
  skips_.erase(it);
}

void Stages::leave(int block, nn::Hidden& hidden) {
  const auto it = hidden.skips.find(block);
  if (!group_ || it == hidden.skips.end()) return;
  const int stage = stage_of(reader_of(block));
  if (stage == group_->rank()) return;
  group_->send(stage, it->second.contiguous(), {"skip", block});
  hidden.skips.erase(it);
}

void Stages::hand_on(const nn::Hidden& hidden) {
  const nn::Joint& streams = hidden.tokens;
  Tensor rows = streams.both.defined() ? streams.both : streams.body;
  if (!streams.both.defined() && streams.prefix.defined() && streams.prefix.size(0) > 0)
    rows = ops::concat_rows({streams.prefix, streams.body});
  const int next = group_->rank() + 1;
  const auto block = static_cast<int>(blocks_[static_cast<size_t>(next)].begin);
  group_->send(next, rows.contiguous(), {"hidden", block});
}

void Stages::expect_latent(int step, int patch) {
  pending_latents_.push_back({step, patch, group_->receive(group_->size() - 1, {"latent", -1})});
}

void Stages::return_latent(const Tensor& rows) {
  group_->send(0, rows.contiguous(), {"latent", -1});
}

std::optional<Stages::ReturnedLatent> Stages::latent_before(int step, int patch) {
  if (pending_latents_.empty()) return {};
  PendingLatent& next = pending_latents_.front();
  // From the step before; with equal splits, the patch itself is enough.
  if (next.step >= step || (patch >= 0 && next.patch > patch)) return {};
  ReturnedLatent back{next.patch, next.rows.wait()};
  pending_latents_.pop_front();
  return back;
}

}  // namespace tessera::parallel
