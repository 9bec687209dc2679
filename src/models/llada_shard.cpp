#include "models/llada_shard.h"

#include <numeric>
#include <string_view>
#include <vector>

#include "base/fail.h"

namespace tessera::models {
namespace {

nn::Range mine(int64_t size, const nn::Shard& shard) {
  return nn::split({0, size}, shard.count, shard.index);
}

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// The part of each of some neighbours on one axis.
nn::Cut cut(int axis, std::initializer_list<int64_t> sizes, const nn::Shard& shard) {
  nn::Cut cut{axis, 0, {}};
  for (int64_t size : sizes) {
    const nn::Range r = mine(size, shard);
    cut.ranges.push_back({cut.full + r.begin, cut.full + r.end});
    cut.full += size;
  }
  return cut;
}

std::string divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

LladaConfig shard_of(const LladaConfig& whole, const nn::Shard& shard) {
  const int count = shard.count;
  require(whole.heads % count == 0 && whole.kv_heads % count == 0, ErrorCode::plan,
          "the plan cannot run: tensor={} does not divide {} heads and {} of keys and values; "
          "valid are: {}",
          count, whole.heads, whole.kv_heads, divisors(std::gcd(whole.heads, whole.kv_heads)));
  LladaConfig part = whole;
  part.heads /= count;
  part.kv_heads /= count;
  for (int64_t LladaConfig::*width :
       {&LladaConfig::dense_width, &LladaConfig::expert_width, &LladaConfig::shared_width}) {
    require(whole.*width == 0 || whole.*width >= count, ErrorCode::plan,
            "the plan cannot run: tensor={} would split a feed-forward layer of width {}", count,
            whole.*width);
    part.*width = mine(whole.*width, shard).size();
  }
  return part;
}

std::optional<nn::Cut> shard_cut(const LladaConfig& c, const nn::Shard& shard,
                                 const std::string& name) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const bool bias = name.ends_with(".bias");
  if (has(name, ".q_proj.")) return cut(0, {q}, shard);
  if (has(name, ".k_proj.") || has(name, ".v_proj.")) return cut(0, {kv}, shard);
  if (has(name, ".query_key_value.")) return cut(0, {q, kv, kv}, shard);
  if (!bias && (has(name, ".o_proj.") || has(name, ".attention.dense."))) return cut(1, {q}, shard);
  if (name.ends_with("experts.gate_up_proj"))
    return cut(1, {c.expert_width, c.expert_width}, shard);
  if (name.ends_with("experts.down_proj")) return cut(2, {c.expert_width}, shard);
  const int64_t width = has(name, ".shared_experts.") ? c.shared_width
                        : has(name, ".experts.")      ? c.expert_width
                                                      : c.dense_width;
  if (has(name, ".gate_proj.") || has(name, ".up_proj.")) return cut(0, {width}, shard);
  if (has(name, ".down_proj.")) return cut(1, {width}, shard);
  return {};
}

}  // namespace tessera::models
