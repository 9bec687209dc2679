#include "parallel/partition.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

std::vector<int> run_of(int size, int rank) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), rank / size * size);
  return ranks;
}

}  // namespace

nn::TokenView Share::view(int64_t prefix) const {
  nn::TokenView view;
  view.rows.resize(static_cast<size_t>(rows()));
  std::iota(view.rows.begin(), view.rows.end(), 0);
  for (int row : view.rows) {
    if (prefix > 0) view.prefix.push_back({row, {0, prefix}});
    view.body.push_back({row, tokens});
  }
  return view;
}

nn::TokenView rows_of(const nn::TokenView& view, size_t begin, size_t end) {
  nn::TokenView part;
  part.patch = view.patch;
  part.rows.assign(view.rows.begin() + static_cast<std::ptrdiff_t>(begin),
                   view.rows.begin() + static_cast<std::ptrdiff_t>(end));
  const auto mine = [&](const nn::Segment& segment) {
    return std::find(part.rows.begin(), part.rows.end(), segment.row) != part.rows.end();
  };
  std::copy_if(view.prefix.begin(), view.prefix.end(), std::back_inserter(part.prefix), mine);
  std::copy_if(view.body.begin(), view.body.end(), std::back_inserter(part.body), mine);
  return part;
}

Share share_of(const Plan& plan, int rank, int pictures, int64_t tokens, int branches) {
  const int shards = plan.distrifusion;
  return {nn::split({0, pictures}, plan.data, rank / shards),
          nn::split({0, tokens}, shards, rank % shards), pictures, tokens, branches};
}

std::vector<int> expert_group(const Plan& plan, int rank) { return run_of(plan.expert, rank); }

std::vector<int> token_group(const Plan& plan, int rank) { return run_of(plan.distrifusion, rank); }

tensor::Tensor cut(const tensor::Tensor& whole, const Share& share) {
  if (share.tokens.size() == share.all_tokens)
    return whole.slice(0, share.pictures.begin * share.all_tokens,
                       share.pictures.end * share.all_tokens);
  std::vector<tensor::Tensor> parts;
  for (int64_t p = share.pictures.begin; p < share.pictures.end; ++p)
    parts.push_back(whole.slice(0, p * share.all_tokens + share.tokens.begin,
                                p * share.all_tokens + share.tokens.end));
  return parts.empty() ? whole.slice(0, 0, 0) : ops::concat_rows(parts);
}

tensor::Tensor join(const std::vector<tensor::Tensor>& parts, const Plan& plan, int pictures,
                    int64_t tokens) {
  std::vector<tensor::Tensor> pieces;
  for (int d = 0; d < plan.data; ++d) {
    const int first = d * plan.distrifusion;
    const nn::Range mine = share_of(plan, first, pictures, tokens, 1).pictures;
    for (int64_t p = 0; p < mine.size(); ++p)
      for (int s = first; s < first + plan.distrifusion; ++s) {
        const int64_t count = share_of(plan, s, pictures, tokens, 1).tokens.size();
        pieces.push_back(parts.at(static_cast<size_t>(s)).slice(0, p * count, (p + 1) * count));
      }
  }
  return ops::concat_rows(pieces);
}

}  // namespace tessera::parallel
