#include "pipeline/check_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/fail.h"
#include "tessera/request_fields.h"
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

template <class Value>
void check_field(const Field& field, const Value& value, const Value& unset) {
  if constexpr (std::is_enum_v<Value>) {
    choice(fmt::format("`{}`", field.name).c_str(), value);
  } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    if ((field.least == 0 && field.most == 0) || value == unset) return;
    require(value >= field.least && value <= field.most, ErrorCode::usage,
            "`{}` {}: expected a number from {} to {}", field.name, value, field.least, field.most);
  }
}
template <class Value>
void check_field(const Field& field, const std::optional<Value>& value,
                 const std::optional<Value>& /*unset*/) {
  // A given number has no default that may lie outside the bounds.
  if (value) check_field(field, *value, std::numeric_limits<Value>::lowest());
}

// Each choice and number of the request's fields.
template <class Request>
void check_fields(const Request& request) {
  const Request unset;
  visit_fields(request, [&](const Field& field, const auto& value) {
    visit_fields(unset, [&](const Field& other, const auto& same) {
      if constexpr (std::is_same_v<decltype(value), decltype(same)>)
        if (std::string_view(field.name) == other.name) check_field(field, value, same);
    });
  });
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
  check_fields(q);
  tiling(q.vae_tiling);
  number("`vae_tiling` (pixels)", q.vae_tile, 0, 1 << 20);
  if (q.cache) check_values(*q.cache);
  for (const int margin : {q.outpaint.left, q.outpaint.top, q.outpaint.right, q.outpaint.bottom})
    number("`outpaint`", margin, 0, 16384);
}

void check_request(const CompleteRequest& q) {
  check_fields(q);
  choice("`cache`", q.cache.kind);
  for (const int count : {q.cache.before, q.cache.after, q.cache.warmup})
    number("`cache` vicinity", count, 0, 1 << 20);
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
  const Precision experts = q.experts.value_or(Precision::int8);
  require(experts == Precision::int8 || experts == Precision::int4, ErrorCode::usage,
          "`experts` {}: experts are quantised to int8 or int4", word_of(experts));
  const bool products = q.dtype || !q.rules.empty();
  require(!products || (!q.experts && !q.dense), ErrorCode::usage,
          "`{}` does not go with `dtype` and `quantise_rules`; give `quantise_rules` experts=FORM, "
          "attn=FORM or mlp=FORM",
          q.experts ? "experts" : "dense");
  require(q.dense.value_or(Precision::int8) == Precision::int8, ErrorCode::usage,
          "`dense` {}: what is dense is quantised to int8, or stays as it is", word_of(*q.dense));
  const Precision precision = q.dtype.value_or(Precision::int8);
  require(precision == Precision::int8 || precision == Precision::int4, ErrorCode::usage,
          "`dtype` {}: products are quantised to int8 or int4", word_of(precision));
  require(q.calibration.empty() || products, ErrorCode::usage,
          "`calibration` smooths the products of a pipeline; give `dtype` int8 or int4 with it");
}

}  // namespace tessera::pipeline
