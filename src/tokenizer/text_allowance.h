#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace tessera::tokenizer {

/// The work that the steps of a tokenizer may still do for one text. All pieces of the text share
/// it. Regular expressions spend processor time, since ICU counts no steps of a match on a short
/// piece; other steps spend the bytes that they make. Used by one thread.
class TextAllowance {
 public:
  /// For a text of `bytes`.
  explicit TextAllowance(size_t bytes);
  /// Counts a step that made `bytes` of text. Throws Error(model) when nothing is left.
  void made(size_t bytes);
  /// A place for an object that `step` makes once a text, such as a matcher; empty at first.
  std::shared_ptr<void>& kept(const void* step) { return kept_[step]; }

  /// Counts the processor time of this thread during its life.
  class Timed {
   public:
    explicit Timed(TextAllowance& allowance);
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    /// False after a stop request on the thread's token, or when no time is left.
    bool goes_on() const;
    /// The same as ICU calls it during a match, with a Timed as its context.
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
  // Reading the processor time is a system call, too slow for each piece: elapsed time is added up,
  // and compared with the processor time now and then.
  int64_t elapsed_ = 0, processor_time_;
  std::unordered_map<const void*, std::shared_ptr<void>> kept_;
};

}  // namespace tessera::tokenizer
