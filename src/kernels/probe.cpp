#include "kernels/probe.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "kernels/amx/tiles.h"
#include "kernels/avx2/vector.h"
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"
#include "tensor/storage.h"

namespace tessera::kernels {
namespace {

double now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double best(const std::function<void()>& f, int times, clockid_t clock) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const double t = now(clock);
    f();
    best = std::min(best, now(clock) - t);
  }
  return best;
}

// Measured by wall time only, in intervals so short that few are interrupted: a virtual machine's
// thread time is sometimes some microseconds too short, and the best time would then be wrong.
constexpr clockid_t kWall = CLOCK_MONOTONIC;
constexpr int kRounds = 20000, kTimes = 24;
// A brief probe takes some 7 us, repeated so that some runs meet neither a pause nor a cold unit.
constexpr int kBriefRounds = 2000, kBriefTimes = 8;

// Rate of all threads: each does `work` in a call.
double rate(double work, const std::function<void()>& f) {
  const int threads = tensor::thread_count();
  const double s =
      best([&] { tensor::parallel_tasks(threads, [&](int64_t) { f(); }); }, kTimes, kWall);
  return threads * work / s;
}

}  // namespace

double Limits::product(bool bf16) const {
  return bf16 ? std::max({bf16_tile, bf16_dot, f32_fma}) : f32_fma;
}

double best_seconds(const std::function<void()>& f, int times) {
  return best(f, times, tensor::thread_count() == 1 ? CLOCK_THREAD_CPUTIME_ID : kWall);
}

#if defined(__x86_64__)
TESSERA_AVX512_BEGIN
namespace {

// Twenty-four chains hide the latency; the operands are not zero, because zeros draw less power.
void dot_products(int rounds) {
  __m512 sum[24];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  __m512i a = _mm512_set1_epi32(0x3f813f83), b = _mm512_set1_epi32(0x3f8abf8b);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (__m512& s : sum) asm volatile("vdpbf16ps %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  }
  asm volatile("" ::"v"(sum[0]));
}

void byte_products(int rounds) {
  __m512i sum[24];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi32(0x53f1a317), b = _mm512_set1_epi32(0x2be4918d);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (__m512i& s : sum) asm volatile("vpdpbusd %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  }
  asm volatile("" ::"v"(sum[0]));
}

void multiply_adds(int rounds) {
  __m512 sum[24];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1.01f), b = _mm512_set1_ps(-0.99f);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (__m512& s : sum) asm volatile("vfmadd231ps %1, %2, %0" : "+v"(s) : "v"(a), "v"(b));
  }
  asm volatile("" ::"v"(sum[0]));
}

}  // namespace
TESSERA_AVX512_END

TESSERA_AVX2_BEGIN
namespace {

// Twelve chains: two each cycle, with a latency of four to five cycles.
void narrow_multiply_adds(int rounds) {
  __m256 sum[12];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1.01f), b = _mm256_set1_ps(-0.99f);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& s : sum) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(s) : "x"(a), "x"(b));
  }
  asm volatile("" ::"x"(sum[0]));
}

void read(const std::byte* p, int64_t bytes, int64_t pages) {
  __m256i x = _mm256_setzero_si256();
  for (int64_t at = 0; at + pages * 4096 <= bytes; at += pages * 4096)
    for (int64_t line = 0; line < 4096; line += 64)
      for (int64_t i = 0; i < pages; ++i) {
        const auto* from = reinterpret_cast<const __m256i*>(p + at + i * 4096 + line);
        x = _mm256_xor_si256(x, _mm256_xor_si256(from[0], from[1]));
      }
  asm volatile("" ::"x"(x));
}

}  // namespace
TESSERA_AVX2_END

TESSERA_AVX512_BEGIN
namespace {

// Nonzero data: with zeros the tiles draw less power and clock a third higher.
void tile_products() {
  alignas(64) std::byte data[4][1024];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 1024; ++j) data[i][j] = static_cast<std::byte>((i * 37 + j * 11) % 63);
  const amx::Tiles::Scope scope;
  amx::Tiles::fence();
  amx::Tiles::zero<0>();
  amx::Tiles::zero<1>();
  amx::Tiles::zero<2>();
  amx::Tiles::zero<3>();
  amx::Tiles::load<4>(data[0]);
  amx::Tiles::load<5>(data[1]);
  amx::Tiles::load<6>(data[2]);
  amx::Tiles::load<7>(data[3]);
  for (int i = 0; i < kRounds; ++i) {
    amx::Tiles::multiply<0, 4, 6>();
    amx::Tiles::multiply<1, 4, 7>();
    amx::Tiles::multiply<2, 5, 6>();
    amx::Tiles::multiply<3, 5, 7>();
  }
}

}  // namespace
TESSERA_AVX512_END

namespace {

double probe_read(int64_t bytes) {
  const auto storage =
      tensor::Storage::allocate(bytes, tensor::Device::cpu, tensor::MemoryClass::buffers);
  std::memset(storage->data(), 1, static_cast<size_t>(bytes));
  const int64_t threads = tensor::thread_count(), part = bytes / threads / 65536 * 65536;
  double best = 0;
  for (int64_t pages : {1, 4, 8}) {
    const double s = best_seconds(
        [&] {
          tensor::parallel_tasks(threads,
                                 [&](int64_t t) { read(storage->data() + t * part, part, pages); });
        },
        3);
    best = std::max(best, static_cast<double>(part * threads) / s);
  }
  return best;
}

}  // namespace

Limits probe_vectors() {
  Limits limits;
  if (detected_isa() < Isa::avx512) return limits;
  for (int i = 0; i < kBriefTimes; ++i) {
    const auto seconds = [](void (*f)(int)) { return best([&] { f(kBriefRounds); }, 1, kWall); };
    if (has_dot_products())
      limits.bf16_dot = std::max(limits.bf16_dot, 24.0 * 64 * kBriefRounds / seconds(dot_products));
    limits.f32_fma = std::max(limits.f32_fma, 24.0 * 32 * kBriefRounds / seconds(multiply_adds));
  }
  return limits;
}

Limits probe_units() {
  Limits limits;
  if (active_isa() == Isa::avx2)
    limits.f32_fma = rate(12.0 * 16 * kRounds, [] { narrow_multiply_adds(kRounds); });
  if (active_isa() < Isa::avx512) return limits;
  if (has_dot_products())
    limits.bf16_dot = rate(24.0 * 64 * kRounds, [] { dot_products(kRounds); });
  limits.int8_dot = rate(24.0 * 128 * kRounds, [] { byte_products(kRounds); });
  limits.f32_fma = rate(24.0 * 32 * kRounds, [] { multiply_adds(kRounds); });
  if (active_isa() >= Isa::amx) limits.bf16_tile = rate(4.0 * 16384 * kRounds, tile_products);
  return limits;
}

Limits probe_limits(int64_t bytes) {
  Limits limits = probe_units();
  if (active_isa() >= Isa::avx2) limits.read = probe_read(bytes);
  return limits;
}
#else
Limits probe_vectors() { return {}; }
Limits probe_units() { return {}; }
Limits probe_limits(int64_t) { return {}; }
#endif

}  // namespace tessera::kernels
