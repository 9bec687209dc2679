#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "fused/symmetric_heap.h"

namespace tessera::fused {

// Delays the transfers of another heap on a separate thread, in any order allowed by the contract:
// a word arrives after its own bytes, with any others between, and all puts of a thread arrive
// before its next signal.
class DelayedHeap final : public SymmetricHeap {
 public:
  DelayedHeap(SymmetricHeap& below, uint32_t seed)
      : SymmetricHeap(&below.ranks(), below.rank(), below.memory()), below_(below), random_(seed) {
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }
  // Whether a transfer is lost.
  std::function<bool(const Transfer& transfer)> loses{};

  void put(const Transfer& t) override { post({t, true, false}); }
  void signal(const Transfer& t) override { post({t, false, true}); }
  void put_signal(const Transfer& t) override { post({t, t.bytes > 0, true}); }

 private:
  struct Letter {
    Transfer transfer;
    bool bytes, word;     // parts still to arrive
    bool fences = false;  // waits for earlier puts of this thread
    std::thread::id by{};
  };
  void post(Letter letter) {
    const std::lock_guard lock(mutex_);
    letter.by = std::this_thread::get_id();
    letter.fences = !letter.bytes && letter.word;
    letters_.push_back(letter);
    came_.notify_one();
  }
  bool must_wait(const Letter& one, size_t at) const {
    for (size_t i = 0; one.fences && i < at; ++i)
      if (letters_[i].bytes && letters_[i].by == one.by &&
          letters_[i].transfer.to == one.transfer.to)
        return true;
    return false;
  }
  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!came_.wait(lock, stop, [&] { return !letters_.empty(); })) return;
      const size_t at = random_() % letters_.size();
      Letter& chosen = letters_[at];
      if (must_wait(chosen, at)) continue;  // the first never waits
      const Letter letter = chosen;
      if (letter.bytes && letter.word)
        chosen.bytes = false;
      else
        letters_.erase(letters_.begin() + int64_t(at));
      const bool lost = loses && loses(letter.transfer);
      if (!lost && letter.bytes)
        below_.put(letter.transfer);  // under the lock: nothing passes a fence
      lock.unlock();
      if (random_() % 200 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (!lost && !letter.bytes) below_.signal(letter.transfer);
    }
  }

  SymmetricHeap& below_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable_any came_;
  std::vector<Letter> letters_;  // in the order of posts
  std::jthread thread_;
};

}  // namespace tessera::fused
