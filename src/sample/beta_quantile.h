#pragma once

namespace tessera::sample {

/// The inverse of the cumulative distribution function of a symmetric beta distribution (both
/// parameters `shape`, in (0, 10]) at `p`.
double beta_quantile(double p, double shape);

}  // namespace tessera::sample
