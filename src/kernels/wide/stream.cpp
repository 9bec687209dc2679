#include "kernels/wide/stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tessera::kernels::wide {
namespace {

constexpr int64_t kFewRows = 8, kFewBytes = int64_t{1} << 20;

#if defined(__x86_64__)
constexpr int64_t kBytes = int64_t{1} << 21, kPanel = 64 << 10, kStep = 2048;
constexpr int kTimes = 4;  // repetitions, so that an interruption does not affect all

// Seconds for a pass over uncached panels.
double seconds_of(const std::byte* data, int64_t pages, uint64_t& sum) {
  for (int64_t at = 0; at < kBytes; at += 64) _mm_clflush(data + at);
  _mm_mfence();
  const auto begun = std::chrono::steady_clock::now();
  __m128i sums[4] = {};
  for (const std::byte* panel = data; panel < data + kBytes; panel += kPanel) {
    Stream next(panel + kPanel, panel + kPanel < data + kBytes ? kPanel : 0, kPanel / kStep, pages);
    for (const std::byte* step = panel; step < panel + kPanel; step += kStep) {
      next.step();
      for (int64_t at = 0; at < kStep; at += 64)
        for (int64_t i = 0; i < 4; ++i) {
          const auto* from = reinterpret_cast<const __m128i*>(step + at + 16 * i);
          sums[i] = _mm_add_epi64(sums[i], _mm_load_si128(from));
        }
    }
  }
  for (const __m128i& sum_of_lane : sums)
    sum += static_cast<uint64_t>(_mm_cvtsi128_si64(sum_of_lane));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}
#endif

int64_t measure() {
  int64_t best = 3;
#if defined(__x86_64__)
  const std::unique_ptr<std::byte[], void (*)(std::byte*)> data(
      static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)),
      [](std::byte* p) { std::free(p); });
  if (!data) return best;
  std::fill_n(data.get(), kBytes, std::byte{1});  // touches the pages
  constexpr std::array<int64_t, 3> kPages{1, 3, 9};
  std::array<double, 3> seconds;
  seconds.fill(std::numeric_limits<double>::infinity());
  uint64_t sum = 0;
  for (int i = 0; i < kTimes; ++i)
    for (size_t p = 0; p < kPages.size(); ++p)
      seconds[p] = std::min(seconds[p], seconds_of(data.get(), kPages[p], sum));
  best = kPages[static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) -
                                    seconds.begin())];
  if (sum == 0) return 3;  // never true; keeps the reads from being optimised out
#endif
  return best;
}

}  // namespace

int64_t measured_stream_pages() {
  static const int64_t pages = measure();
  return pages;
}

int64_t stream_pages(int64_t rows, int64_t groups, int64_t bytes) {
  if (groups > 2) return 4;
  if (bytes < kFewBytes) return 3;
  const int64_t measured = measured_stream_pages();
  return rows > kFewRows ? std::max<int64_t>(measured, 3) : measured;
}

}  // namespace tessera::kernels::wide
