#include "pipeline/check_request.h"

#include <algorithm>

#include "base/fail.h"
#include "tessera/words.h"

namespace tessera::pipeline {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 60;

void number(const char* name, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, ErrorCode::usage,
          "{} {}: expected a number from {} to {}", name, value, least, most);
}

// The words of a choice's values, numbered from 0.
template <class Value>
void choice(const char* name, Value value) {
  number(name, static_cast<int64_t>(value), 0, std::ssize(words_of<Value>()) - 1);
}
void tiling(VaeTiling value) {
  number("`vae_tiling`", static_cast<int64_t>(value), 0, static_cast<int64_t>(VaeTiling::off));
}

}  // namespace

void check_request(const RunOptions& o) {
  check_values(o.plan);
  choice("`dtype`", o.precision);
  require(o.precision != Precision::f32 || o.quantise_rules.empty() ||
              o.quantise_rules == "blocks=bf16",
          ErrorCode::usage,
          "`quantise_rules` {}: quantised products need `dtype` bf16, int8 or int4",
          o.quantise_rules);
  number("`threads`", o.threads, 0, 4096);
  number("`memory_budget`", o.memory_budget, 0, kMostBytes);
  number("`comm_timeout` (milliseconds)", o.comm_timeout.count(), 1, 86'400'000);
  choice("`device`", o.device.kind);
  number("`device` cuda", o.device.index.value_or(0), 0, 1 << 16);
}

void check_request(const GenerateRequest& q) {
  choice("`noise`", q.noise);
  choice("`scheduler`", q.scheduler);
  tiling(q.vae_tiling);
  number("`count`", q.count, 1, 100'000);
  number("`width`", q.width, 0, 1 << 20);
  number("`height`", q.height, 0, 1 << 20);
  number("`frames`", q.frames, 0, 1 << 20);
  number("`text_tokens`", q.text_tokens, 0, 1 << 20);
  number("`vae_tiling` (pixels)", q.vae_tile, 0, 1 << 20);
  number("`vae_chunk`", q.vae_chunk, 0, 1 << 20);
  if (q.cache) check_values(*q.cache);
  choice("`image_fit`", q.image_fitting);
  require(q.mask_blur >= 0 && q.mask_blur <= 1000, ErrorCode::usage,
          "`mask_blur` {}: expected a radius of 0 to 1000 pixels", q.mask_blur);
  number("`padding_mask_crop`", q.padding_mask_crop.value_or(0), 0, 16384);
  for (const int margin : {q.outpaint.left, q.outpaint.top, q.outpaint.right, q.outpaint.bottom})
    number("`outpaint`", margin, 0, 16384);
}

void check_request(const CompleteRequest& q) {
  number("`block`", q.block, 0, 1 << 20);
  number("`max_tokens`", q.max_tokens, 0, int64_t{1} << 40);
  number("`steps`", q.steps, 0, 1 << 20);
  choice("`cache`", q.cache.kind);
  for (const int count : {q.cache.before, q.cache.after, q.cache.warmup})
    number("`cache` vicinity", count, 0, 1 << 20);
  choice("`stop_at_eos`", q.stop_at_eos);
  number("`top_k`", q.top_k, 0, 1 << 30);
  number("`n`", q.n, 1, 10'000);
  number("`logprobs`", q.logprobs.value_or(0), 0, 1000);
  for (const std::string& text : q.stop)
    require(!text.empty(), ErrorCode::usage,
            "`stop` '': an empty text ends every answer before it begins; leave it out");
}

void check_request(const ForwardRequest& q) {
  choice("`component`", q.component);
  tiling(q.vae_tiling);
  number("`vae_tiling` (pixels)", q.vae_tile, 0, 1 << 20);
  number("`vae_chunk`", q.vae_chunk, 0, 1 << 20);
  require(q.vae_chunk == 0 || q.component == ModelPart::vae_decode ||
              q.component == ModelPart::vae_encode,
          ErrorCode::usage,
          "`vae_chunk` {} is for `component` vae.decode and vae.encode; leave it out", q.vae_chunk);
  const bool layer = q.component == ModelPart::moe_layer;
  require(layer == q.moe.has_value(), ErrorCode::usage, "{}",
          layer ? "a moe_layer runs as `moe` says; add `moe` gate=NAME,top_k=K,experts=FORM"
                : "`moe` is for `component` moe_layer; leave it out");
  if (!layer) return;
  number("`moe` top_k", q.moe->top_k, 1, 1 << 20);
  choice("`moe` experts", q.moe->experts);
  number("`moe` capacity", q.moe->capacity.value_or(0), 0, int64_t{1} << 40);
}

void check_request(const QuantiseRequest& q) {
  require(
      !q.output.empty(), ErrorCode::usage,
      "nothing says where the folder is to be written (`output`); name one that does not exist");
  require(q.experts == Precision::int8 || q.experts == Precision::int4, ErrorCode::usage,
          "`experts` {}: experts are quantised to int8 or int4", word_of(q.experts));
  require(q.dense.value_or(Precision::int8) == Precision::int8, ErrorCode::usage,
          "`dense` {}: what is dense is quantised to int8, or stays as it is", word_of(*q.dense));
  const Precision all = q.dtype.value_or(Precision::int8);
  require(all == Precision::int8 || all == Precision::int4, ErrorCode::usage,
          "`dtype` {}: products are quantised to int8 or int4", word_of(all));
}

}  // namespace tessera::pipeline
