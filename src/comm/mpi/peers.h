#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/whereabouts.h"

namespace tessera::comm::mpi {

/// The other ranks of MPI, watched by the thread that owns MPI: ranks of this machine by a pidfd of
/// their process, all others by their heartbeats. Thread-safe.
class Peers {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  Peers(int rank, const std::vector<Whereabouts>& where, Time now);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int ranks() const { return static_cast<int>(peers_.size()); }
  /// A heartbeat of a rank: its progress count, and its wait for a rank, or -1.
  void heard(int rank, uint64_t progress, int waits_for, Time now);
  /// A sign of life of a rank.
  void alive(int rank, Time now) { peers_[size_t(rank)].last = now.time_since_epoch().count(); }
  /// A rank's last progress count.
  uint64_t progress(int rank) const { return peers_[size_t(rank)].progress; }
  /// The rank it waits for, or -1; unknown without a recent heartbeat.
  int waits_for(int rank, Time now) const {
    const Peer& peer = peers_[size_t(rank)];
    return now - Time(Clock::duration(peer.last)) > kLately ? -1 : peer.waits_for.load();
  }
  /// A rank announced a regular end; its silence is no loss.
  void left(int rank) { peers_[size_t(rank)].left = true; }
  /// True if a rank's process is gone.
  bool gone(int rank) const { return peers_[size_t(rank)].gone_at != 0; }
  /// The time of this observation.
  Time gone_at(int rank) const { return Time(Clock::duration(peers_[size_t(rank)].gone_at)); }
  /// Waits until a process ends, at most `limit`. Returns the rank that has been gone for longest
  /// without leaving, or -1.
  int await_end(std::chrono::microseconds limit);
  /// The rank with the longest silence above `limit` without leaving; or -1. `heartbeat_only`:
  /// only ranks without a pidfd.
  int silent(Time now, std::chrono::milliseconds limit, bool heartbeat_only) const;

 private:
  static constexpr std::chrono::milliseconds kLately{500};
  struct Peer {
    std::atomic<uint64_t> progress{0};
    std::atomic<int64_t> last{0}, gone_at{0};  // counts of Clock; 0: not gone
    std::atomic<int> waits_for{-1};
    std::atomic<bool> left{false};
    int pidfd = -1;
  };
  int rank_;
  std::vector<Peer> peers_;
};

}  // namespace tessera::comm::mpi
