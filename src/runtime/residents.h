#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::runtime {

class Resident;
class AtWork;

/// The open models of a process that keep weights between requests: what they keep, and what their
/// runs take, counts against each other. Models without a run are idle, and let go of what they
/// keep when a run of another one needs the room.
class Residents {
 private:
  friend class Resident;
  friend class AtWork;
  std::mutex mutex_;
  std::vector<Resident*> all_;
  uint64_t turn_ = 0;  // counts beginnings and ends of runs
};

/// One of them, for as long as this lives. Thread-safe.
class Resident {
 public:
  /// Bytes that it keeps for later requests, and how it lets go of them; who uses some of them has
  /// them until then. Neither may begin or end a run.
  struct Keeps {
    std::string name;
    std::function<int64_t()> bytes;
    std::function<void()> release;
  };
  Resident(Residents& among, Keeps keeps);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

 private:
  friend class AtWork;
  int64_t taken(const AtWork* but = nullptr) const;
  int64_t held() const;

  Residents& among_;
  const Keeps keeps_;
  std::vector<const AtWork*> runs_;  // that took something
  uint64_t used_ = 0;                // the turn of its last beginning or end of a run
};

/// A run of a model, which takes memory until its end.
class AtWork {
 public:
  /// Null: of a model that counts for itself; take() then does nothing.
  explicit AtWork(Resident* of) : of_(of) {}
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  /// What runs of a model hold.
  struct Held {
    std::string name;
    int64_t bytes = 0;
  };
  /// Which idle models may let go.
  enum class Idle { stay, leave };
  /// Takes `bytes` in place of what it took before, of which `weights` are the model's, which its
  /// runs share, if `room` is enough for that beside all that others hold. Where it is not, idle
  /// models let go, the one first whose last run is the longest ago, until it is. False: it took
  /// nothing, and `others` are the runs for which there is no room (none: an idle model stayed).
  /// Alone it takes all.
  bool take(int64_t bytes, int64_t weights, int64_t room, std::vector<Held>& others,
            Idle idle = Idle::leave);

 private:
  friend class Resident;
  Resident* const of_;
  int64_t bytes_ = 0, weights_ = 0;
};

}  // namespace tessera::runtime
