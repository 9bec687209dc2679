#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace tessera::tokenizer {

/// Remaining work of a tokenizer's steps for a text, shared by all pieces of the text. Regular
/// expressions are charged processor time, because ICU does not count the steps of a match on a
/// short piece; other steps are charged the bytes they produce. Used by a single thread.
class TextAllowance {
 public:
  /// `bytes`: length of the text.
  explicit TextAllowance(size_t bytes);
  /// Charges a step for `bytes` of output. Throws Error(model) if nothing is left.
  void charge(size_t bytes);
  /// Storage for an object that `step` creates once for each text, such as a matcher; empty at
  /// first.
  std::shared_ptr<void>& object_of(const void* step) { return objects_[step]; }

  /// Charges the processor time of this thread during the object's lifetime.
  class Timed {
   public:
    explicit Timed(TextAllowance& allowance);
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    /// False after a stop request on the thread's token, or if no time is left.
    bool goes_on() const;
    /// Callback for ICU during a match, with a Timed as context.
    static int8_t match_goes_on(const void* timed, int32_t) {
      return static_cast<const Timed*>(timed)->goes_on();
    }

   private:
    TextAllowance& allowance_;
    int64_t begin_;
  };

 private:
  int64_t spent(int64_t elapsed) const;

  size_t bytes_left_;
  int64_t nanoseconds_left_;
  // Reading the processor time is a system call, too slow for each piece. Elapsed time is
  // accumulated, and occasionally compared with the processor time.
  int64_t elapsed_ = 0, processor_time_;
  std::unordered_map<const void*, std::shared_ptr<void>> objects_;
};

}  // namespace tessera::tokenizer
