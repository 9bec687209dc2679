#include "kernels/experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/scratch.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Some rows of an expert, and the location of their inner activations.
struct Part {
  int64_t expert, first, rows, inner;
};

struct Work {
  const ExpertsArgs& args;
  ExpertGroups groups;
  ExpertCuts cuts;
  std::vector<Part> parts;
  int64_t inner_bytes = 0;

  Work(const ExpertTiles& tiles, const ExpertsArgs& a)
      : args(a), groups(group_by_expert(a)), cuts(tiles.cuts(a.bank[0])) {
    for (int64_t e = 0; e < a.experts; ++e) {
      const int64_t begin = groups.begin[static_cast<size_t>(e)];
      const int64_t rows = groups.begin[static_cast<size_t>(e) + 1] - begin;
      for (int64_t i = 0, n = ceil_div(rows, cuts.rows); i < n; ++i) {
        const int64_t first = rows * i / n, last = rows * (i + 1) / n;
        parts.push_back({e, begin + first, last - first, inner_bytes});
        inner_bytes += tiles.inner_bytes(a.bank[e], last - first);
      }
    }
    // Long parts first: short parts fill the gaps at the end.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& p, const Part& q) { return p.rows > q.rows; });
  }

  // Runs all parts, each split into runs of panels: enough to keep all threads busy, but with
  // little preparation for each run.
  void run(void (*tile)(const ExpertTile&), int64_t panels, std::byte* inner) const {
    const auto count = static_cast<int64_t>(parts.size());
    const int64_t tasks = ceil_div(8 * tensor::thread_count(), count);
    const int64_t runs = std::clamp<int64_t>(tasks, 1, std::max<int64_t>(1, panels / 8));
    tensor::parallel_tasks(count * runs, [&](int64_t task) {
      const Part& p = parts[static_cast<size_t>(task / runs)];
      const int64_t at = task % runs;
      tile({.expert = &args.bank[p.expert],
            .activation = args.activation,
            .x = args.x,
            .dtype = args.dtype,
            .x_stride = args.x_stride,
            .rows = p.rows,
            .pair = groups.pair.data() + p.first,
            .slots = args.slots,
            .begin = panels * at / runs,
            .end = panels * (at + 1) / runs,
            .inner = inner + p.inner,
            .y = args.rows});
    });
  }
};

}  // namespace

void clear_rows_without_expert(const ExpertsArgs& args) {
  const int64_t bytes = args.hidden * size_of(args.dtype);
  for (int64_t i = 0; i < args.tokens * args.slots; ++i)
    if (args.ids[i] < 0)
      std::memset(static_cast<std::byte*>(args.rows) + i * bytes, 0, static_cast<size_t>(bytes));
}

void run_experts(const ExpertTiles& tiles, const ExpertsArgs& args) {
  clear_rows_without_expert(args);
  const Work work(tiles, args);
  if (work.parts.empty()) return;
  std::byte* const inner = thread_scratch(1).at_least(work.inner_bytes);
  work.run(tiles.up, work.cuts.up_panels, inner);
  work.run(tiles.down, work.cuts.down_panels, inner);
}

ExpertGroups group_by_expert(const ExpertsArgs& args) {
  ExpertGroups groups;
  groups.begin.assign(static_cast<size_t>(args.experts) + 1, 0);
  const int64_t pairs = args.tokens * args.slots;
  for (int64_t i = 0; i < pairs; ++i)
    if (args.ids[i] >= 0) ++groups.begin[static_cast<size_t>(args.ids[i]) + 1];
  for (size_t e = 1; e < groups.begin.size(); ++e) groups.begin[e] += groups.begin[e - 1];
  groups.pair.resize(static_cast<size_t>(groups.begin.back()));
  std::vector<int64_t> at(groups.begin.begin(), groups.begin.end() - 1);
  for (int64_t i = 0; i < pairs; ++i)
    if (args.ids[i] >= 0)
      groups.pair[static_cast<size_t>(at[static_cast<size_t>(args.ids[i])]++)] =
          static_cast<int32_t>(i);
  return groups;
}

}  // namespace tessera::kernels
