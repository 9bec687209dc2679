#include "pipeline/check_request.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::pipeline {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;

void number(const char* name, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, ErrorCode::usage,
          "{} {}: expected a number from {} to {}", name, value, least, most);
}

template <class Value>
void choice(const char* name, Value value, Value last) {
  number(name, static_cast<int64_t>(value), 0, static_cast<int64_t>(last));
}

}  // namespace

void check_request(const RunOptions& o) {
  check_values(o.plan);
  choice("--dtype", o.precision, Precision::int8);
  number("--threads", o.threads, 0, 4096);
  number("--memory-budget", o.memory_budget, 0, kMostBytes);
  number("--comm-timeout (milliseconds)", o.comm_timeout.count(), 1, 86'400'000);
  if (!o.processes) return;
  number("processes: ranks", o.processes->ranks, 1, 1 << 16);
  number("processes: rank", o.processes->rank, 0, o.processes->ranks - 1);
  number("processes: on_this_machine", o.processes->on_this_machine, 1, o.processes->ranks);
}

void check_request(const GenerateRequest& q) {
  choice("--rng", q.noise, NoiseSource::philox);
  choice("--vae-tiling", q.vae_tiling, VaeTiling::off);
  number("--count", q.count, 1, 100'000);
  number("--width", q.width, 0, 1 << 20);
  number("--height", q.height, 0, 1 << 20);
  number("--frames", q.frames, 0, 1 << 20);
  number("--text-tokens", q.text_tokens, 0, 1 << 20);
  number("--vae-tiling (pixels)", q.vae_tile, 0, 1 << 20);
}

void check_request(const CompleteRequest& q) {
  number("--block", q.block, 0, 1 << 20);
  number("--max-tokens", q.max_tokens, 0, int64_t{1} << 40);
  number("--steps", q.steps, 0, 1 << 20);
}

void check_request(const ForwardRequest& q) {
  choice("--vae-tiling", q.vae_tiling, VaeTiling::off);
  number("--vae-tiling (pixels)", q.vae_tile, 0, 1 << 20);
}

}  // namespace tessera::pipeline
