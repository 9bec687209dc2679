#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::tokenizer {

/// What the steps of a tokenizer may still do for one text, however many pieces it is cut into: all
/// of them share it. Regular expressions spend processor time, since ICU counts no steps of a match
/// on a short piece; other steps spend the bytes that they make.
class TextAllowance {
 public:
  /// For a text of `bytes`.
  explicit TextAllowance(size_t bytes);
  /// Counts a step that made `bytes` of text. Throws Error(model) when nothing is left.
  void made(size_t bytes);

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
  size_t bytes_left_;
  int64_t nanoseconds_left_;
};

}  // namespace tessera::tokenizer
