#include "server/shares.h"

#include <algorithm>

namespace tessera::server {
namespace {
constexpr int kMostBeside = 8;  // runs beside --at-once
}  // namespace

size_t Shares::own_queue() const {
  return shared() ? static_cast<size_t>(std::max(1, queue / clients)) : static_cast<size_t>(queue);
}

size_t Shares::most_queue() const {
  return shared() ? std::max(own_queue(), static_cast<size_t>(queue / 2))
                  : static_cast<size_t>(queue);
}

bool Shares::may_wait(size_t own, size_t all) const {
  if (!shared()) return all < static_cast<size_t>(queue);
  return own < own_queue() || (own < most_queue() && all < static_cast<size_t>(queue));
}

int Shares::most_runs() const {
  return shared() ? at_once + std::min(clients - 1, kMostBeside) : at_once;
}

bool Shares::may_run(int own, int all) const {
  return all < at_once || (shared() && own == 0 && all < most_runs());
}

}  // namespace tessera::server
