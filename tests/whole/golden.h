#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "load/safetensors.h"
#include "tessera/engine.h"

namespace tessera::golden {

/// A temporary folder, removed by the destructor.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// max |a - b| / max |b|, as in the reference data.
inline double max_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double(a[i]) - double(b[i]));
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return worst / largest;
}

/// |a - b| / |b|, L2.
inline double l2_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double error = 0, size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    size += double(b[i]) * b[i];
  }
  return std::sqrt(error / size);
}

/// Row i of axis 0, as floats.
inline std::vector<float> row(const tensor::Tensor& x, int64_t i) {
  return x.slice(0, i, i + 1).to_floats();
}

inline RunOptions options(Precision precision, int threads = 2) {
  RunOptions run;
  run.precision = precision;
  run.threads = threads;
  return run;
}

}  // namespace tessera::golden
