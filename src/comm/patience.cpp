#include "comm/patience.h"

#include <vector>

#include "base/fail.h"

namespace tessera::comm {

uint64_t Patience::progress() const {
  uint64_t sum = 0;
  for (int rank = 0; rank < transport_.size(); ++rank) sum += transport_.progress(rank);
  return sum;
}

bool Patience::over() {
  const uint64_t now = progress();
  if (now != last_progress_) {
    last_progress_ = now;
    since_ = Clock::now();
  }
  return Clock::now() - since_ >= deadline_;
}

std::string standstill(const Transport& transport, int peer) {
  std::vector<bool> visited(static_cast<size_t>(transport.size()));
  visited[static_cast<size_t>(transport.rank())] = true;
  std::string text = fmt::format("rank {}, ", peer);
  for (;;) {
    visited[static_cast<size_t>(peer)] = true;
    peer = transport.waits_for(peer);
    if (peer < 0 || peer >= transport.size()) return text + "which made no progress";
    text += fmt::format("which waits for rank {}", peer);
    if (visited[static_cast<size_t>(peer)]) return text + ", so that they wait for each other";
    text += ", ";
  }
}

}  // namespace tessera::comm
