#include "kernels/attention.h"

#if defined(__x86_64__)
#include <algorithm>
#include <span>
#include <vector>

#include "base/stop.h"
#include "kernels/wide/flash.h"
#include "tensor/scope.h"

namespace tessera::kernels::wide {
namespace {

constexpr int64_t kSharedBytes = int64_t{64} << 20;  // total packed keys and values at a time
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kBlocksPerTask = 8;

int64_t packed_bytes(const AttentionEngine& engine, const PackedHead& head) {
  const int64_t keys = ceil_div(head.keys(), engine.keys) * engine.keys;
  const int64_t mean = engine.find_mean ? kMostChannels * 4 : 0;
  return ceil_div(engine.packed_bytes(head.args->head_dim, keys), 64) * 64 + mean;
}

// The mean lies behind the packed keys and values.
void place(const AttentionEngine& engine, std::byte* memory, PackedHead& head) {
  head.packed = memory;
  if (engine.find_mean)
    head.mean = reinterpret_cast<float*>(memory + packed_bytes(engine, head)) - kMostChannels;
}

// Each thread packs a head and processes all its queries: nothing is shared, so nobody waits.
void run_head(const AttentionEngine& engine, PackedHead head) {
  const int64_t group = head.args->heads / head.args->kv_heads, most = engine.tile * engine.tiles;
  place(engine, thread_scratch(0).at_least(packed_bytes(engine, head)), head);
  if (engine.find_mean) engine.find_mean(head);
  engine.pack(head, {0, ceil_div(head.keys(), engine.keys)});
  for (int64_t h = 0; h < group; ++h)
    for (int64_t q = 0; q < head.queries(); q += most) {
      base::check_stop();  // a head of a VAE at 1536 x 1536 takes 15 s
      engine.attend(head, head.kv_head * group + h, {q, std::min(head.queries(), q + most)});
    }
}

struct Task {
  const PackedHead* head;
  int64_t query_head;
  Range range;
};

// All threads pack, then all threads attend.
void run_together(const AttentionEngine& engine, std::span<PackedHead> heads) {
  int64_t bytes = 0, tiles = 0;
  const int64_t group = heads[0].args->heads / heads[0].args->kv_heads;
  for (const PackedHead& h : heads) {
    bytes += packed_bytes(engine, h);
    tiles += ceil_div(h.queries(), engine.tile) * group;
  }
  std::byte* memory = thread_scratch(1).at_least(bytes);
  const int64_t per_task = tiles / (tensor::thread_count() * kTasksPerThread);
  const int64_t most = std::clamp<int64_t>(per_task, 1, engine.tiles) * engine.tile;
  std::vector<Task> packs, attends;
  for (PackedHead& h : heads) {
    place(engine, memory, h);
    memory += packed_bytes(engine, h);
    const int64_t blocks = ceil_div(h.keys(), engine.keys);
    for (int64_t b = 0; b < blocks; b += kBlocksPerTask)
      packs.push_back({&h, 0, {b, std::min(blocks, b + kBlocksPerTask)}});
    for (int64_t i = 0; i < group; ++i)
      for (int64_t q = 0; q < h.queries(); q += most)
        attends.push_back({&h, h.kv_head * group + i, {q, std::min(h.queries(), q + most)}});
  }
  if (engine.find_mean)
    tensor::parallel_tasks(static_cast<int64_t>(heads.size()),
                           [&](int64_t i) { engine.find_mean(heads[static_cast<size_t>(i)]); });
  tensor::parallel_tasks(static_cast<int64_t>(packs.size()), [&](int64_t i) {
    const Task& t = packs[static_cast<size_t>(i)];
    engine.pack(*t.head, t.range);
  });
  tensor::parallel_tasks(static_cast<int64_t>(attends.size()), [&](int64_t i) {
    const Task& t = attends[static_cast<size_t>(i)];
    engine.attend(*t.head, t.query_head, t.range);
  });
}

// Adjacent spans with keys from the same start and never fewer keys than the spans before: a causal
// mask. Their keys are packed once, and their queries share tiles. A mean is over the keys of a
// query, so int8 scores join only spans with the same keys.
struct Steps {
  std::vector<AttentionRange> runs;
  std::vector<int64_t> key_counts;  // by query of all runs

  explicit Steps(const AttentionArgs& args) {
    for (int64_t s = 0; s < args.span_count; ++s) {
      const AttentionRange& span = args.spans[s];
      const int64_t queries = span.q_end - span.q_begin, keys = span.k_end - span.k_begin;
      if (queries <= 0 || keys <= 0) continue;
      if (!runs.empty() && runs.back().q_end == span.q_begin &&
          runs.back().k_begin == span.k_begin &&
          (args.int8_scores ? runs.back().k_end == span.k_end : runs.back().k_end <= span.k_end)) {
        runs.back().q_end = span.q_end;
        runs.back().k_end = span.k_end;
      } else {
        runs.push_back(span);
      }
      key_counts.insert(key_counts.end(), static_cast<size_t>(queries), keys);
    }
  }
};

}  // namespace

void run_attention(const AttentionEngine& engine, const AttentionArgs& args,
                   const DistanceBias& bias) {
  const Steps steps(args);
  std::vector<PackedHead> heads;
  const int64_t* key_counts = steps.key_counts.data();
  for (const AttentionRange& run : steps.runs) {
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      PackedHead head{&args, run, h, bias, nullptr};
      if (*key_counts < head.keys()) head.key_counts = key_counts;
      heads.push_back(head);
    }
    key_counts += run.q_end - run.q_begin;
  }
  const int64_t count = static_cast<int64_t>(heads.size()), threads = tensor::thread_count();
  if (threads == 1 || count >= threads * kTasksPerThread) {
    tensor::parallel_tasks(count,
                           [&](int64_t i) { run_head(engine, heads[static_cast<size_t>(i)]); });
    return;
  }
  for (size_t begin = 0, end; begin < heads.size(); begin = end) {
    int64_t bytes = packed_bytes(engine, heads[begin]);
    for (end = begin + 1; end < heads.size(); ++end)
      if ((bytes += packed_bytes(engine, heads[end])) > kSharedBytes) break;
    run_together(engine, std::span(heads).subspan(begin, end - begin));
  }
}

void run_attention(const AttentionEngine& engine, const BiasedAttentionArgs& a) {
  const AttentionRange span{0, a.tokens, 0, a.visible};
  const int heads = static_cast<int>(a.heads);
  run_attention(engine,
                {.q = a.q,
                 .k = a.k,
                 .v = a.v,
                 .q_stride = a.q_stride,
                 .k_stride = a.k_stride,
                 .v_stride = a.v_stride,
                 .q_tokens = a.tokens,
                 .k_tokens = a.visible,
                 .out = a.out,
                 .out_stride = a.out_stride,
                 .dtype = a.dtype,
                 .heads = heads,
                 .kv_heads = heads,
                 .head_dim = static_cast<int>(a.head_dim),
                 .spans = &span,
                 .span_count = 1},
                {a.bias, a.bias_stride, a.tokens});
}

}  // namespace tessera::kernels::wide
#endif  // __x86_64__
