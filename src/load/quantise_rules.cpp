#include "load/quantise_rules.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::load {
namespace {

using Bits = QuantiseRules::Bits;

constexpr std::string_view kBlocks = "blocks";  // matrices that a file holds in few bits
constexpr std::string_view kScores = "scores";  // no matrices
constexpr std::string_view kVae = "vae";        // filters
constexpr std::string_view kModulation = "modulation";
constexpr std::array<std::string_view, 10> kKeys = {
    "attn", "mlp", kModulation, "experts", "text", "text.attn", "text.mlp", kBlocks, kScores, kVae};

// A block number follows one of these prefixes, at the beginning of a name or after a dot.
constexpr std::array<std::string_view, 7> kBeforeNumbers = {
    "transformer_blocks.", "blocks.",         "layers.", "layer.", "block.",
    "noise_refiner.",      "context_refiner."};
// Modulations that all blocks share.
constexpr std::string_view kShared = "_stream_modulation";
// Parts of a name behind the block number; the first match decides the kind of product.
constexpr std::string_view kNormLinear = ".linear.weight";  // a norm's modulation
constexpr std::array<std::string_view, 2> kModulations = {"adaLN", "modulation"};
constexpr std::array<std::string_view, 2> kOther = {"norm", "skip"};
constexpr std::array<std::string_view, 2> kMlpOfBert = {"intermediate.dense", "output.dense"};
constexpr std::array<std::string_view, 4> kAttention = {"attn", "Attention", "attention", "qkv"};
constexpr std::array<std::string_view, 7> kMlp = {
    "ff.", "feed_forward", "ff_context.", "mlp", "proj_out", "DenseReluDense", "shared_experts"};

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The name after the first block number; "": not in a block.
std::string_view in_block(std::string_view name) {
  for (size_t at = 0; at < name.size(); ++at) {
    if (at > 0 && name[at - 1] != '.' && name[at - 1] != '_') continue;
    for (const std::string_view blocks : kBeforeNumbers) {
      if (!name.substr(at).starts_with(blocks)) continue;
      const std::string_view rest = name.substr(at + blocks.size());
      const size_t digits = static_cast<size_t>(
          std::ranges::find_if_not(rest, [](unsigned char c) { return std::isdigit(c); }) -
          rest.begin());
      if (digits > 0 && digits < rest.size() && rest[digits] == '.') return rest.substr(digits + 1);
    }
  }
  return "";
}

Bits parse_bits(const std::string& word, const std::string& option) {
  for (const Bits bits : {Bits::none, Bits::int8, Bits::int4})
    if (word == name_of(bits)) return bits;
  fail(ErrorCode::usage, "{}: {} is no form of weights; expected bf16, int8 or int4", option,
       base::printable(word));
}

}  // namespace

bool matches_rule(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (matches_rule(name.substr(at), rest)) return true;
  return false;
}

ProductKind product_kind(std::string_view name) {
  const std::string_view rest = in_block(name);
  const auto any = [&](const auto& words) {
    return std::ranges::any_of(words, [&](std::string_view word) { return holds(rest, word); });
  };
  if (any(kModulations) || (holds(rest, "norm") && rest.ends_with(kNormLinear)) ||
      holds(name, kShared))
    return ProductKind::modulation;
  if (rest.empty() || any(kOther)) return ProductKind::other;
  if (any(kAttention)) return ProductKind::attention;
  return any(kMlp) || any(kMlpOfBert) ? ProductKind::mlp : ProductKind::other;
}

const char* name_of(Bits bits) {
  switch (bits) {
    case Bits::int8: return "int8";
    case Bits::int4: return "int4";
    case Bits::none: break;
  }
  return "bf16";
}

QuantiseRules QuantiseRules::all_in(Bits bits) {
  QuantiseRules rules;
  for (const char* key : {"attn", "mlp", "text", "experts"}) rules.rules_.push_back({key, bits});
  if (bits == Bits::int4) rules.rules_.push_back({std::string(kModulation), Bits::int8});
  return rules;
}

void QuantiseRules::add(const std::string& text, const std::string& option) {
  size_t begin = 0;
  while (begin <= text.size() && !text.empty()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string rule = text.substr(begin, end - begin);
    const size_t equal = rule.find('=');
    require(equal != std::string::npos && equal > 0, ErrorCode::usage,
            "{}: {} is no rule; expected NAME=FORM, as attn=int8,mlp=int4", option,
            base::printable(rule));
    const std::string of = rule.substr(0, equal);
    const bool name = of.find('*') != std::string::npos || of.ends_with(".weight");
    require(name || std::ranges::find(kKeys, of) != kKeys.end(), ErrorCode::usage,
            "{}: {} names no products; expected attn, mlp, modulation, experts, text, text.attn, "
            "text.mlp, blocks, scores, vae, or names of weights with a '*'",
            option, base::printable(of));
    const Bits bits = parse_bits(rule.substr(equal + 1), option);
    require(of != kBlocks || bits != Bits::int4, ErrorCode::usage,
            "{}: {}: expected blocks=int8, in the few bits of the file, or blocks=bf16, its exact "
            "numbers",
            option, base::printable(rule));
    require((of != kScores && of != kVae) || bits != Bits::int4, ErrorCode::usage,
            "{}: {}: expected {}=int8 or {}=bf16", option, base::printable(rule), of, of);
    rules_.push_back({of, bits});
    begin = end + 1;
  }
}

std::string QuantiseRules::text() const {
  std::string text;
  for (const Rule& rule : rules_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", rule.of, name_of(rule.bits));
  return text;
}

Bits QuantiseRules::bits_of(const std::string& name, ProductKind kind, bool encoder) const {
  if (encoder && kind == ProductKind::modulation) kind = ProductKind::other;
  const std::string own(kind == ProductKind::attention    ? "attn"
                        : kind == ProductKind::modulation ? kModulation
                                                          : "mlp");
  Bits bits = Bits::none;
  for (const Rule& rule : rules_) {
    const bool says = encoder ? rule.of == "text" || rule.of == "text." + own : rule.of == own;
    if ((says && kind != ProductKind::other) || matches_rule(name, rule.of)) bits = rule.bits;
  }
  return bits;
}

bool QuantiseRules::names_products() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) {
    return rule.of != kBlocks && rule.of != kScores && rule.of != kVae;
  });
}

bool QuantiseRules::names(Bits bits) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) { return rule.bits == bits; });
}

std::optional<Bits> QuantiseRules::said(std::string_view key) const {
  std::optional<Bits> bits;
  for (const Rule& rule : rules_)
    if (rule.of == key) bits = rule.bits;
  return bits;
}

Bits QuantiseRules::experts() const { return said("experts").value_or(Bits::none); }

ops::WeightForm QuantiseRules::form(const std::string& name, ops::DType compute, int64_t k,
                                    bool encoder) const {
  if (compute != ops::DType::bf16 && compute != ops::DType::i8) return compute;
  const bool expert = compute == ops::DType::i8;
  const Bits bits = expert ? experts() : bits_of(name, product_kind(name), encoder);
  require(bits != Bits::int4 || k % 2 == 0, ErrorCode::usage,
          "int4: the rows of {} are of {} elements, and two of them share a byte; choose int8 for "
          "it (`quantise_rules`)",
          base::printable(name), k);
  if (!expert) return bits == Bits::none ? compute : ops::WeightForm::of_rows(bits == Bits::int4);
  ops::WeightForm form(compute);
  form.int4 = bits == Bits::int4;
  return form;
}

}  // namespace tessera::load
