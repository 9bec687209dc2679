#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/whereabouts.h"

namespace tessera::comm::mpi {

/// Which ranks live: by their process where it can be seen from here, by their heartbeats
/// elsewhere. Thread-safe.
class Peers {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  Peers(int rank, const std::vector<Whereabouts>& where, Time now);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int ranks() const { return static_cast<int>(peers_.size()); }
  /// A rank was heard: it has done so much, and waits for another, or for none (-1).
  void heard(int rank, uint64_t progress, int waits_for, Time now);
  /// Something came of a rank.
  void alive(int rank, Time now) { peers_[size_t(rank)].last = now.time_since_epoch().count(); }
  /// What a rank said it has done.
  uint64_t progress(int rank) const { return peers_[size_t(rank)].progress; }
  /// For whom it said that it waits, or -1; of one that was not heard lately nobody knows.
  int waits_for(int rank, Time now) const {
    const Peer& peer = peers_[size_t(rank)];
    return now - Time(Clock::duration(peer.last)) > kLately ? -1 : peer.waits_for.load();
  }
  /// A rank said that it will not be heard any more.
  void left(int rank) { peers_[size_t(rank)].left = true; }
  /// Whether the process of a rank was seen to be gone.
  bool gone(int rank) const { return peers_[size_t(rank)].gone_at != 0; }
  /// When that was seen.
  Time gone_at(int rank) const { return Time(Clock::duration(peers_[size_t(rank)].gone_at)); }
  /// Waits until a process ends, or for so long. The rank that is gone for longest and had not
  /// left, or -1.
  int await_end(std::chrono::microseconds limit);
  /// The rank that has been silent for longest, if for longer than `limit` and if it had not left;
  /// or -1. `elsewhere`: only those whose process cannot be seen.
  int silent(Time now, std::chrono::milliseconds limit, bool elsewhere) const;

 private:
  static constexpr std::chrono::milliseconds kLately{500};
  struct Peer {
    std::atomic<uint64_t> progress{0};
    std::atomic<int64_t> last{0}, gone_at{0};
    std::atomic<int> waits_for{-1};
    std::atomic<bool> left{false};
    int process = -1;  // pidfd
  };
  int rank_;
  std::vector<Peer> peers_;
};

}  // namespace tessera::comm::mpi
