#include "base/seeded_hash.h"

#include <random>

namespace tessera::base {

const std::array<uint64_t, 2>& hash_seeds() {
  static const std::array<uint64_t, 2> seeds = [] {
    std::random_device device;
    const auto number = [&] { return uint64_t{device()} << 32 | device(); };
    return std::array<uint64_t, 2>{number(), number()};
  }();
  return seeds;
}

}  // namespace tessera::base
