#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels::wide {

/// Prefetches the weights of the next panel into L2 during the steps of this panel: a line from
/// each of some pages at a time, because the prefetcher of L2 works inside a page and memory serves
/// several streams faster than one.
class Stream {
 public:
  Stream() = default;
  Stream(const std::byte* from, int64_t bytes, int64_t steps, int64_t pages)
      : at_(from),
        end_(from + bytes),
        group_(pages * 4096),
        beats_((bytes + group_ - 1) / group_ * 64),
        steps_(steps) {}
  __attribute__((always_inline)) void step() {
    for (credit_ += beats_; credit_ >= steps_; credit_ -= steps_) {
      for (const std::byte* p = at_ + line_; p < at_ + group_; p += 4096)
        if (p < end_) __builtin_prefetch(p, 0, 2);
      if ((line_ += 64) == 4096) {
        line_ = 0;
        at_ += group_;
      }
    }
  }

 private:
  const std::byte *at_ = nullptr, *end_ = nullptr;
  int64_t group_ = 0, line_ = 0, credit_ = 0, beats_ = 0, steps_ = 1;
};

/// Number of parallel pages with the fastest memory reads on this CPU: 1, 3 or 9; measured once for
/// each process, in two milliseconds. Results do not depend on the number.
int64_t measured_stream_pages();
/// Pages of a Stream for products with these rows, groups and bytes of weights: the measured number
/// if memory is the bottleneck.
int64_t stream_pages(int64_t rows, int64_t groups, int64_t bytes);

}  // namespace tessera::kernels::wide
