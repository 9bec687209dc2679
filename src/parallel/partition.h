#pragma once

#include <vector>

#include "nn/seams.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// What a rank owns of a request, for all of its steps: pictures, and tokens of each of them, in
/// every guidance branch.
struct Share {
  nn::Range pictures, tokens;
  int all_pictures = 0;    ///< of the request
  int64_t all_tokens = 0;  ///< of a picture
  int branches = 1;        ///< 2 with guidance

  int rows() const { return static_cast<int>(pictures.size()) * branches; }
  /// The number, over the whole request, of one of my rows: branch * pictures + picture.
  int global_row(int row) const {
    const int mine = static_cast<int>(pictures.size());
    return row / mine * all_pictures + static_cast<int>(pictures.begin) + row % mine;
  }
  /// My tokens as a view: rows from 0, as the model numbers them on this rank.
  nn::TokenView view(int64_t prefix) const;
};

/// The part of a view that holds the rows view.rows[begin, end), under their own numbers.
nn::TokenView rows_of(const nn::TokenView& view, size_t begin, size_t end);

/// What rank `rank` of a plan owns. Ranks are numbered data outermost, then distrifusion.
Share share_of(const Plan& plan, int rank, int pictures, int64_t tokens, int branches);

/// Ranks that share experts with `rank`: runs of `plan.expert` neighbours.
std::vector<int> expert_group(const Plan& plan, int rank);
/// Ranks that hold the other tokens of the same pictures.
std::vector<int> token_group(const Plan& plan, int rank);

/// Rows [all pictures * all tokens, c] of a whole request -> mine.
tensor::Tensor cut(const tensor::Tensor& whole, const Share& share);
/// What all ranks hold, by rank -> the whole request's rows [pictures * tokens, c].
tensor::Tensor join(const std::vector<tensor::Tensor>& parts, const Plan& plan, int pictures,
                    int64_t tokens);

}  // namespace tessera::parallel
