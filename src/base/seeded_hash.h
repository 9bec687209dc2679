#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::base {

/// Two random numbers, secret to this process.
const std::array<uint64_t, 2>& hash_seeds();

/// Hashes untrusted keys. Without the seeds an attacker cannot find colliding keys, which would
/// make a table of n keys take n * n steps. The order of such a table differs between runs.
struct SeededHash {
  using is_transparent = void;
  size_t operator()(uint64_t key) const {
    const auto& seeds = hash_seeds();
    return mixed(key ^ seeds[0], seeds[1]);
  }
  size_t operator()(std::string_view text) const {
    const auto& seeds = hash_seeds();
    uint64_t hash = seeds[0] ^ text.size();
    for (size_t at = 0; at < text.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, text.size() - at < 8 ? text.size() - at : 8);
      hash = mixed(word ^ seeds[1], hash ^ seeds[0]);
    }
    return mixed(hash ^ seeds[1], seeds[0]);
  }

 private:
  // Both halves of the product, as in wyhash.
  static uint64_t mixed(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * (b | 1);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

}  // namespace tessera::base
