#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

namespace tessera::fused {

// Two numbers for a state: among some millions no two collide by chance.
struct Digest {
  uint64_t a = 0, b = 0;
  bool operator==(const Digest&) const = default;
};
struct DigestHash {
  size_t operator()(const Digest& d) const { return d.a; }
};

inline Digest digest(const std::byte* bytes, size_t size) {
  Digest d{0x9e3779b97f4a7c15, 0x2545f4914f6cdd1d};
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<size_t>(8, size - i));
    d.a = (d.a ^ word) * 0xff51afd7ed558ccd;
    d.a ^= d.a >> 32;
    d.b = (d.b + word) * 0xc4ceb9fe1a85ec53;
    d.b ^= d.b >> 29;
  }
  return d;
}

struct Explored {
  int64_t states = 0, ends = 0;
  std::string failure;
};

// All states reachable by any order of actions, or the first failure.
template <class World>
Explored explore(World& world) {
  const size_t size = world.size();
  struct Level {
    std::vector<std::byte> state;
    int next = 0;
    bool moved = false;
  };
  std::vector<std::byte> now(size);
  world.save(now.data());
  std::unordered_set<Digest, DigestHash> seen{digest(now.data(), size)};
  std::vector<Level> path(1);
  path[0].state = now;
  size_t depth = 1;
  Explored found;
  bool here = true;  // the world is in the state at the end of the path
  while (depth > 0 && world.failure().empty()) {
    Level& level = path[depth - 1];
    if (!here) world.restore(level.state.data());
    here = true;
    if (level.next == world.actions()) {
      if (!level.moved) {
        ++found.ends;
        if (!world.over()) {
          found.failure = "nobody can go on";
          break;
        }
      }
      --depth;
      here = false;
      continue;
    }
    if (!world.act(level.next++)) continue;
    level.moved = true;
    world.save(now.data());
    here = seen.insert(digest(now.data(), size)).second;
    if (!here) continue;
    if (path.size() == depth) path.emplace_back();
    path[depth].state = now;
    path[depth].next = 0;
    path[depth++].moved = false;
  }
  found.states = static_cast<int64_t>(seen.size());
  if (found.failure.empty()) found.failure = world.failure();
  return found;
}

}  // namespace tessera::fused
