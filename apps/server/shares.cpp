#include "server/shares.h"

#include <algorithm>
#include <cmath>

namespace tessera::server {
namespace {
constexpr int kMostBeside = 8;  // runs in addition to --at-once
constexpr double kHalf = 60;    // seconds
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

bool Shares::may_run(int own, int others, int all) const {
  if (!shared()) return all < at_once;
  return own == 0 ? all < most_runs() : others == 0 && all < at_once;
}

void Recent::add(const std::string& client, double seconds, double now) {
  all_[client] = {of(client, now) + seconds, now};
}

double Recent::of(const std::string& client, double now) const {
  const auto it = all_.find(client);
  if (it == all_.end()) return 0;
  return it->second.seconds * std::exp2((it->second.at - now) / kHalf);
}

}  // namespace tessera::server
