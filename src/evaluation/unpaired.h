#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::evaluation {

/// Mean and covariance of features.
struct Moments {
  std::vector<double> mean;        ///< [d]
  std::vector<double> covariance;  ///< [d, d], of the population
};
/// For features f32 [n, d], n >= 1.
Moments moments(const tensor::Tensor& features);
/// Fréchet distance of two normal distributions: |m - m'|^2 + tr(C + C' - 2 (C C')^1/2) (Heusel et
/// al. 2017). Throws Error(usage) when their sizes differ.
double frechet_distance(const Moments& a, const Moments& b);

/// exp of the mean divergence of the classes of an image from the classes of all (Salimans et al.
/// 2016); logits f32 [n, classes]; from 1 to the number of classes.
double inception_score(const tensor::Tensor& logits);

/// Improved precision and recall (Kynkäänniemi et al. 2019, section 3).
struct Overlap {
  double precision = 0;  ///< share of made features within the manifold of the real ones
  double recall = 0;     ///< share of real features within the manifold of the made ones
};
/// Features f32 [n, d] and [m, d]; a manifold consists of balls around its features, up to their
/// `neighbours`-th nearest.
Overlap overlap(const tensor::Tensor& samples, const tensor::Tensor& real, int neighbours = 3);

}  // namespace tessera::evaluation
