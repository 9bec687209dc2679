#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::runtime {

class PooledModel;
class MemoryReservation;

/// The open models of a process with weights kept between requests. Kept weights and the memory of
/// runs share a budget. Models without a run are idle, and release kept weights if a run of another
/// model needs the memory.
class ModelPool {
 private:
  friend class PooledModel;
  friend class MemoryReservation;
  std::mutex mutex_;
  std::vector<PooledModel*> all_;
  uint64_t turn_ = 0;  // counts beginnings and ends of runs
};

/// A model's membership, until destruction. Thread-safe.
class PooledModel {
 public:
  /// Bytes kept for later requests, and their release; users of the weights keep their references.
  /// The functions must not begin or end a run.
  struct Keeps {
    std::string name;
    std::function<int64_t()> bytes;
    std::function<void()> release;
  };
  PooledModel(ModelPool& among, Keeps keeps);
  ~PooledModel();
  PooledModel(const PooledModel&) = delete;
  PooledModel& operator=(const PooledModel&) = delete;

 private:
  friend class MemoryReservation;
  int64_t reserved_bytes(const MemoryReservation* but = nullptr) const;
  int64_t held_bytes() const;

  ModelPool& pool_;
  const Keeps keeps_;
  std::vector<const MemoryReservation*> runs_;  // runs with a reservation
  uint64_t last_turn_ = 0;                      // the turn of the last beginning or end of a run
};

/// A run of a model, with a memory reservation until destruction.
class MemoryReservation {
 public:
  /// Null: the model is not shared, and take() does nothing.
  explicit MemoryReservation(PooledModel* model) : model_(model) {}
  ~MemoryReservation();
  MemoryReservation(const MemoryReservation&) = delete;
  MemoryReservation& operator=(const MemoryReservation&) = delete;

  /// Memory that runs of a model hold.
  struct ModelMemory {
    std::string name;
    int64_t bytes = 0;
  };
  /// Whether idle models may release their weights.
  enum class Idle { stay, leave };
  /// Replaces the run's reservation by `bytes` if `room` is enough for the reservations of all
  /// models. `weights`: the part of `bytes` shared by runs of the model. If `room` is too small,
  /// idle models release their weights, the least recently used first. On false the reservation is
  /// unchanged, and `others` lists the runs in the way (empty: an idle model stayed). A run alone
  /// always succeeds.
  bool take(int64_t bytes, int64_t weights, int64_t room, std::vector<ModelMemory>& others,
            Idle idle = Idle::leave);

 private:
  friend class PooledModel;
  PooledModel* const model_;
  int64_t bytes_ = 0, weights_ = 0;
};

}  // namespace tessera::runtime
