#include "tokenizer/text_allowance.h"

#include <ctime>

#include "base/fail.h"
#include "base/stop.h"

namespace tessera::tokenizer {
namespace {

// Published tokenizers make up to 20 bytes of a byte, and their patterns take some 200 ns for it.
constexpr size_t kBytes = size_t{1} << 20, kBytesAByte = 48, kBytesAStep = 4;
constexpr int64_t kNanoseconds = 250'000'000, kNanosecondsAByte = 600;

int64_t processor_time() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

TextAllowance::TextAllowance(size_t bytes)
    : bytes_left_(kBytes + kBytesAByte * bytes),
      nanoseconds_left_(kNanoseconds + kNanosecondsAByte * static_cast<int64_t>(bytes)) {}

void TextAllowance::made(size_t bytes) {
  base::check_stop();
  require(bytes + kBytesAStep <= bytes_left_, ErrorCode::model,
          "the steps of the tokenizer make more than {} times as much text as they get; the file "
          "is damaged, or made to take for ever",
          kBytesAByte);
  bytes_left_ -= bytes + kBytesAStep;
}

TextAllowance::Timed::Timed(TextAllowance& allowance)
    : allowance_(allowance), begin_(processor_time()) {}

TextAllowance::Timed::~Timed() { allowance_.nanoseconds_left_ -= processor_time() - begin_; }

bool TextAllowance::Timed::goes_on() const {
  return !base::current_stop().stop_requested() &&
         processor_time() - begin_ <= allowance_.nanoseconds_left_;
}

}  // namespace tessera::tokenizer
