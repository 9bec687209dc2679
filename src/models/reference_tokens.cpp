#include "models/reference_tokens.h"

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

// Returns lines and columns of each reference, and checks them against the number of tokens.
std::vector<std::array<int64_t, 2>> sizes_of(const nn::Conditioning& conditioning,
                                             const nn::TokenShape& shape) {
  std::vector<std::array<int64_t, 2>> sizes;
  const Tensor input = optional_input(conditioning, "reference_sizes");
  int64_t tokens = 0;
  if (input.defined() && input.is_meta()) return sizes;
  if (input.defined() && input.size(0) > 0) {
    require(input.rank() == 2 && input.size(1) % 2 == 0, ErrorCode::usage,
            "'reference_sizes' is {}; expected [batch, 2 * references]", input.shape().str());
    const std::vector<int64_t> values = input.to_ints();
    for (size_t i = 0; i + 1 < static_cast<size_t>(input.size(1)); i += 2) {
      sizes.push_back({values[i], values[i + 1]});
      tokens += values[i] * values[i + 1];
    }
  }
  require(tokens == shape.extra || (input.defined() && input.size(0) == 0), ErrorCode::usage,
          "'reference_sizes' says {} tokens of references; the request has {}", tokens,
          shape.extra);
  return sizes;
}

}  // namespace

References references_of(const nn::Conditioning& conditioning, const nn::TokenShape& shape,
                         int64_t channels) {
  References references;
  if (shape.extra > 0) {
    int64_t count = 0;
    references.tokens = text_input(conditioning, "reference_tokens", shape.batch, channels, &count);
    require(count == shape.extra, ErrorCode::usage,
            "'reference_tokens' has {} tokens, the request {}", count, shape.extra);
  }
  references.sizes = sizes_of(conditioning, shape);
  return references;
}

ReferenceRows reference_rows(const nn::TokenShape& shape, const nn::Segments& body) {
  ReferenceRows rows;
  const int64_t latent = shape.latent_tokens();
  int32_t at = 0;
  for (const nn::Segment& s : body)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id, ++at) {
      if (id < latent) continue;
      rows.at.push_back(at);
      rows.from.push_back(static_cast<int32_t>(s.sequence * shape.extra + id - latent));
    }
  return rows;
}

Tensor with_references(const Tensor& latent, const Tensor& tokens, const ReferenceRows& rows) {
  if (rows.at.empty()) return latent;
  const Tensor joined = Tensor::empty(latent.shape(), latent.dtype(), latent.device());
  tensor::copy_into(joined, latent);
  ops::move_rows(tokens, rows.from, joined, rows.at);
  return joined;
}

void clear_references(const Tensor& prediction, const ReferenceRows& rows) {
  if (rows.at.empty()) return;
  ops::move_rows(prediction, std::vector<int32_t>(rows.at.size(), -1), prediction, rows.at);
}

}  // namespace tessera::models
