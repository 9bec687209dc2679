#include "evaluation/unpaired.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::evaluation {
namespace {

using tensor::Tensor;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const Matrix> square(const Moments& m) {
  const auto d = static_cast<Eigen::Index>(m.mean.size());
  return {m.covariance.data(), d, d};
}

// Square roots of the eigenvalues of a symmetric matrix; negative rounding results become 0.
Eigen::VectorXd roots(const Eigen::SelfAdjointEigenSolver<Matrix>& solver) {
  return solver.eigenvalues().cwiseMax(0).cwiseSqrt();
}

// Squared distances of all rows of a to all rows of b, a block of rows at a time.
template <class Use>
void distances(const Tensor& a, const Tensor& b, const Use& use) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  const auto d = static_cast<Eigen::Index>(x.size(1));
  const Eigen::Map<const Floats> right(y.data<float>(), y.size(0), d);
  const Eigen::VectorXf lengths = right.rowwise().squaredNorm();
  constexpr int64_t kBlock = 128;
  tensor::parallel_for(x.size(0), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t rows = std::min(kBlock, end - at);
      const Eigen::Map<const Floats> left(x.data<float>() + at * d, rows, d);
      Floats block = -2 * left * right.transpose();
      block.rowwise() += lengths.transpose();
      block.colwise() += left.rowwise().squaredNorm();
      for (int64_t i = 0; i < rows; ++i) use(at + i, block.row(i).data(), right.rows());
    }
  });
}

// Squared distance of each row to its k-th nearest other row.
std::vector<float> reaches(const Tensor& x, int k) {
  std::vector<float> reach(static_cast<size_t>(x.size(0)));
  distances(x, x, [&](int64_t i, const float* row, int64_t n) {
    std::vector<float> row_distances;
    for (int64_t j = 0; j < n; ++j)
      if (j != i) row_distances.push_back(row[j]);
    std::nth_element(row_distances.begin(), row_distances.begin() + k - 1, row_distances.end());
    reach[static_cast<size_t>(i)] = row_distances[static_cast<size_t>(k - 1)];
  });
  return reach;
}

double share_within(const Tensor& points, const Tensor& centres, int k) {
  const std::vector<float> reach = reaches(centres, k);
  std::vector<char> is_inside(static_cast<size_t>(points.size(0)));
  distances(points, centres, [&](int64_t i, const float* row, int64_t n) {
    for (int64_t j = 0; j < n && !is_inside[static_cast<size_t>(i)]; ++j)
      is_inside[static_cast<size_t>(i)] = row[j] <= reach[static_cast<size_t>(j)];
  });
  return double(std::count(is_inside.begin(), is_inside.end(), 1)) / double(is_inside.size());
}

}  // namespace

Moments moments(const Tensor& features) {
  require(features.rank() == 2 && features.size(0) >= 1, ErrorCode::usage,
          "moments need features [n, d], not {}", features.shape().str());
  const Tensor rows = features.contiguous();
  const auto n = static_cast<Eigen::Index>(rows.size(0)),
             d = static_cast<Eigen::Index>(rows.size(1));
  const Matrix x = Eigen::Map<const Floats>(rows.data<float>(), n, d).cast<double>();
  const Eigen::RowVectorXd mean = x.colwise().mean();
  const Matrix centred = x.rowwise() - mean;
  const Matrix covariance = centred.transpose() * centred / double(n);
  return {{mean.data(), mean.data() + d}, {covariance.data(), covariance.data() + d * d}};
}

double frechet_distance(const Moments& a, const Moments& b) {
  require(a.mean.size() == b.mean.size() && !a.mean.empty(), ErrorCode::usage,
          "features of {} and {} numbers compared", a.mean.size(), b.mean.size());
  double distance = 0;
  for (size_t i = 0; i < a.mean.size(); ++i)
    distance += (a.mean[i] - b.mean[i]) * (a.mean[i] - b.mean[i]);
  const Eigen::SelfAdjointEigenSolver<Matrix> first{Matrix(square(a))};
  const Matrix root =
      first.eigenvectors() * roots(first).asDiagonal() * first.eigenvectors().transpose();
  const Eigen::SelfAdjointEigenSolver<Matrix> product(Matrix(root * square(b) * root),
                                                      Eigen::EigenvaluesOnly);
  return std::max(0.0, distance + square(a).trace() + square(b).trace() - 2 * roots(product).sum());
}

double inception_score(const Tensor& logits) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  require(n >= 1, ErrorCode::usage, "a score of no images");
  std::vector<double> mean(static_cast<size_t>(classes));
  double certainty = 0;  // mean of sum p log p
  for (int64_t i = 0; i < n; ++i) {
    const float* row = logits.row<float>(i);
    const double top = *std::max_element(row, row + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - top);
    for (int64_t c = 0; c < classes; ++c) {
      const double log_p = row[c] - top - std::log(sum), p = std::exp(log_p);
      certainty += p * log_p / double(n);
      mean[static_cast<size_t>(c)] += p / double(n);
    }
  }
  for (double p : mean)
    if (p > 0) certainty -= p * std::log(p);
  return std::exp(certainty);
}

Overlap overlap(const Tensor& samples, const Tensor& real, int neighbours) {
  require(samples.rank() == 2 && real.rank() == 2 && samples.size(1) == real.size(1) &&
              neighbours >= 1 && samples.size(0) > neighbours && real.size(0) > neighbours,
          ErrorCode::usage, "precision and recall of {} and {} with {} neighbours",
          samples.shape().str(), real.shape().str(), neighbours);
  return {share_within(samples, real, neighbours), share_within(real, samples, neighbours)};
}

}  // namespace tessera::evaluation
