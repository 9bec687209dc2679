#include "base/random.h"

#include <array>
#include <cmath>

namespace tessera::base {
namespace {

constexpr double kTurn = 6.283185307179586;

// Sixteen uniforms in place: pairs (j, j + 8) become two normals.
void box_muller_16(float* x) {
  for (int j = 0; j < 8; ++j) {
    const float radius = std::sqrt(-2 * std::log(1 - x[j]));
    const float angle = 2.0f * static_cast<float>(kTurn / 2) * x[j + 8];
    x[j] = radius * std::cos(angle);
    x[j + 8] = radius * std::sin(angle);
  }
}

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0,
                            0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

}  // namespace

TorchGenerator::TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

float TorchGenerator::uniform() { return static_cast<float>(next() & 0xffffff) * 0x1p-24f; }

double TorchGenerator::uniform_double() {
  const uint64_t high = next(), low = next();
  return static_cast<double>((high << 32 | low) & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::normal_double() {
  if (kept_) {
    const double value = *kept_;
    kept_.reset();
    return value;
  }
  const double u1 = uniform_double(), u2 = uniform_double();
  const double radius = std::sqrt(-2 * std::log1p(-u2)), angle = kTurn * u1;
  kept_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void TorchGenerator::rand(std::span<float> out) {
  for (float& x : out) x = uniform();
}

void TorchGenerator::randn(std::span<float> out) {
  if (out.size() < 16) {
    for (float& x : out) x = static_cast<float>(normal_double());
    return;
  }
  rand(out);
  for (size_t i = 0; i + 16 <= out.size(); i += 16) box_muller_16(&out[i]);
  if (out.size() % 16 != 0) {  // the last sixteen are drawn again
    const auto tail = out.last(16);
    rand(tail);
    box_muller_16(tail.data());
  }
}

int64_t TorchGenerator::randint(int64_t limit) { return next() % limit; }

void Philox::randn(std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto bits = philox(seed_, at_++);
    for (size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      const size_t pair = j / 2 * 2;
      const double u1 = (double(bits[pair]) + 0.5) * 0x1p-32, u2 = double(bits[pair + 1]) * 0x1p-32;
      const double radius = std::sqrt(-2 * std::log(u1));
      out[i + j] =
          static_cast<float>(radius * (j % 2 ? std::sin(kTurn * u2) : std::cos(kTurn * u2)));
    }
  }
}

}  // namespace tessera::base
