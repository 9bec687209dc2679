#include "tokenizer/text_allowance.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/fail.h"
#include "base/stop.h"

namespace tessera::tokenizer {
namespace {

// Published tokenizers make up to 20 bytes from a byte, and their patterns need some 200 ns for a
// byte.
constexpr size_t kBytes = size_t{1} << 20, kBytesAByte = 48, kBytesAStep = 4;
constexpr int64_t kNanoseconds = 250'000'000, kNanosecondsAByte = 600;
constexpr int64_t kElapsed = 10'000'000;  // counted without checking the processor time

int64_t processor_time() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t elapsed_time() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TextAllowance::TextAllowance(size_t bytes)
    : bytes_left_(kBytes + kBytesAByte * bytes),
      nanoseconds_left_(kNanoseconds + kNanosecondsAByte * static_cast<int64_t>(bytes)),
      processor_time_(processor_time()) {}

void TextAllowance::charge(size_t bytes) {
  base::check_stop();
  require(bytes + kBytesAStep <= bytes_left_, ErrorCode::model,
          "the steps of the tokenizer make more than {} times as much text as they get; the file "
          "is damaged, or made to take for ever",
          kBytesAByte);
  bytes_left_ -= bytes + kBytesAStep;
}

// Elapsed time includes other threads, and processor time includes other steps: the smaller value
// belongs to the match.
int64_t TextAllowance::spent(int64_t elapsed) const {
  return std::min(elapsed, processor_time() - processor_time_);
}

TextAllowance::Timed::Timed(TextAllowance& allowance)
    : allowance_(allowance), begin_(elapsed_time()) {}

TextAllowance::Timed::~Timed() {
  TextAllowance& all = allowance_;
  all.elapsed_ += elapsed_time() - begin_;
  if (all.elapsed_ < kElapsed) return;
  all.nanoseconds_left_ -= all.spent(all.elapsed_);
  all.elapsed_ = 0;
  all.processor_time_ = processor_time();
}

bool TextAllowance::Timed::goes_on() const {
  if (base::current_stop().stop_requested()) return false;
  const int64_t elapsed = allowance_.elapsed_ + elapsed_time() - begin_;
  if (elapsed < kElapsed && allowance_.nanoseconds_left_ >= kElapsed) return true;
  return allowance_.spent(elapsed) <= allowance_.nanoseconds_left_;
}

}  // namespace tessera::tokenizer
