#include "comm/mpi/peers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace tessera::comm::mpi {

Peers::Peers(int rank, const std::vector<Whereabouts>& where, Time now)
    : rank_(rank), peers_(where.size()) {
  for (int peer = 0; peer < ranks(); ++peer) {
    peers_[size_t(peer)].last = now.time_since_epoch().count();
    if (peer == rank || where[size_t(peer)].machine != where[size_t(rank)].machine) continue;
    const long process = syscall(SYS_pidfd_open, static_cast<pid_t>(where[size_t(peer)].pid), 0U);
    if (process < 0 && errno == ESRCH)
      peers_[size_t(peer)].gone_at = now.time_since_epoch().count();
    peers_[size_t(peer)].process = static_cast<int>(process);  // old kernels: heartbeats tell
  }
}

Peers::~Peers() {
  for (Peer& peer : peers_)
    if (peer.process >= 0) close(peer.process);
}

void Peers::heard(int rank, uint64_t progress, int waits_for, Time now) {
  peers_[size_t(rank)].waits_for = waits_for;
  peers_[size_t(rank)].progress = progress;
  alive(rank, now);
}

int Peers::await_end(std::chrono::microseconds limit) {
  std::vector<pollfd> ends;
  std::vector<Peer*> of;
  for (Peer& peer : peers_)
    if (peer.process >= 0 && peer.gone_at == 0) {
      ends.push_back({peer.process, POLLIN, 0});
      of.push_back(&peer);
    }
  const auto micros = std::max<int64_t>(limit.count(), 0);
  const timespec wait{micros / 1000000, micros % 1000000 * 1000};
  if (ppoll(ends.data(), ends.size(), &wait, nullptr) > 0)
    for (size_t i = 0; i < ends.size(); ++i)
      if ((ends[i].revents & POLLIN) != 0) of[i]->gone_at = Clock::now().time_since_epoch().count();
  int first = -1;
  for (int peer = 0; peer < ranks(); ++peer)
    if (gone(peer) && !peers_[size_t(peer)].left && (first < 0 || gone_at(peer) < gone_at(first)))
      first = peer;
  return first;
}

int Peers::silent(Time now, std::chrono::milliseconds limit, bool elsewhere) const {
  int longest = -1;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Peer& p = peers_[size_t(peer)];
    const Time last{Clock::duration(p.last)};
    if (peer == rank_ || p.left || (elsewhere && p.process >= 0) || now - last <= limit) continue;
    if (longest < 0 || p.last < peers_[size_t(longest)].last) longest = peer;
  }
  return longest;
}

}  // namespace tessera::comm::mpi
