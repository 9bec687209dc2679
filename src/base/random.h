#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>

namespace tessera::base {

/// The numbers of PyTorch's CPU generator for a seed (mt19937), so that images can be compared with
/// the reference pipelines'.
class TorchGenerator {
 public:
  explicit TorchGenerator(uint64_t seed);
  /// torch.rand of out.size() float32.
  void rand(std::span<float> out);
  /// torch.randn of a dense float32 tensor of out.size() elements. Calls are not additive: PyTorch
  /// draws 16 or more elements in blocks, fewer elements one by one.
  void randn(std::span<float> out);
  /// torch.randint(0, limit) of 64-bit integers, 0 < limit < 2^32.
  int64_t randint(int64_t limit);

 private:
  uint32_t next() { return static_cast<uint32_t>(engine_()); }
  float uniform();
  double uniform_double();
  double normal_double();
  std::mt19937 engine_;
  std::optional<double> kept_;  // the second value of a pair
};

/// Counter-based normal numbers (Philox 4x32-10, Salmon et al. 2011): element i of a stream is a
/// function of (seed, i) alone.
class Philox {
 public:
  explicit Philox(uint64_t seed) : seed_(seed) {}
  void randn(std::span<float> out);

 private:
  uint64_t seed_, at_ = 0;  // at_: elements drawn so far, rounded up to fours
};

}  // namespace tessera::base
