#include "kernels/experts.h"

namespace tessera::kernels {

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
