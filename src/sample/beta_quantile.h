#pragma once

namespace tessera::sample {

/// Where a share `p` of a symmetric beta distribution (both parameters `shape`, in (0, 10]) lies
/// below: the inverse of its cumulative distribution function.
double beta_quantile(double p, double shape);

}  // namespace tessera::sample
