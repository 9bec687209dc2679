#include "server/wrong_keys.h"

#include <arpa/inet.h>

#include <algorithm>

namespace tessera::server {
namespace {

constexpr double kFree = 10, kSeconds = 6;  // free tries, and seconds for each further try
constexpr size_t kMostAddresses = 4096;

std::string network_of(const std::string& address) {
  char bytes[sizeof(in6_addr)];
  if (::inet_pton(AF_INET6, address.c_str(), bytes) != 1) return address;
  return {bytes, 8};
}

}  // namespace

bool WrongKeys::count(const std::string& address, double now) {
  const auto left_at = [now](const Tries& t) {
    return std::min(kFree, t.remaining + (now - t.at) / kSeconds);
  };
  if (all_.size() >= kMostAddresses)
    std::erase_if(all_, [&](const auto& entry) { return left_at(entry.second) >= kFree; });
  if (all_.size() >= kMostAddresses) {  // drop the oldest address
    const auto oldest = std::ranges::min_element(
        all_, [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
    all_.erase(oldest);
  }
  Tries& tries = all_.try_emplace(network_of(address), Tries{kFree, now}).first->second;
  tries.remaining = left_at(tries);
  tries.at = now;
  if (tries.remaining < 1) return true;
  tries.remaining -= 1;
  return false;
}

}  // namespace tessera::server
