#pragma once

#include <cstdint>
#include <initializer_list>

namespace tessera::sample {

/// splitmix64: numbers with a different bit become unrelated numbers.
inline uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A number in (0, 1) as a function only of a draw's numbers, on any rank and in any batch.
inline double uniform_of(std::initializer_list<uint64_t> numbers) {
  uint64_t state = 0;
  for (const uint64_t number : numbers) state = mixed(state ^ number);
  return (double(state >> 11) + 0.5) * 0x1p-53;
}

}  // namespace tessera::sample
