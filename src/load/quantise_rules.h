#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/matmul.h"

namespace tessera::load {

/// Layer of a product, from the name of the weight: a block's attention, MLP or modulation, or
/// another layer (first and last layers, long skips). Modulations that blocks share count as
/// theirs.
enum class ProductKind : uint8_t { other, attention, mlp, modulation };
ProductKind product_kind(std::string_view name);

/// Chooses the weights of a pipeline that are quantised for products with int8 activations. The
/// last rule that matches a weight applies.
class QuantiseRules {
 public:
  enum class Bits : uint8_t { none, int8, int4 };
  struct Rule {
    /// "attn", "mlp", "modulation" or "experts" (routed); "text", "text.attn" or "text.mlp" for
    /// text encoders; or a weight's name with '*' as wildcard; "blocks": weights that a file holds
    /// in block formats; "scores": the scores of attention, no weights; "vae": filters of a VAE's
    /// residual blocks.
    std::string of;
    Bits bits = Bits::none;
  };

  QuantiseRules() = default;
  /// Rules for all products of blocks, text encoders and routed experts in `bits`. Modulations are
  /// in int8 with int4, and in bf16 with int8.
  static QuantiseRules all_in(Bits bits);
  /// Appends rules: "attn=int8,mlp=int4,transformer_blocks.0.*=bf16". Throws Error(usage) naming
  /// `option`.
  void add(const std::string& text, const std::string& option);

  bool empty() const { return rules_.empty(); }
  /// True if any rule is for weights of products that no file holds in block formats.
  bool names_products() const;
  /// True if any rule is for this form.
  bool names(Bits bits) const;
  /// The form of the last rule for a key; none without such a rule.
  std::optional<Bits> said(std::string_view key) const;
  /// True if attention computes its scores from int8 (ops/attention.h).
  bool int8_scores() const { return said("scores") == Bits::int8; }
  /// True if a VAE computes its residual blocks with filters in int8.
  bool int8_filters() const { return said("vae") == Bits::int8; }
  const std::vector<Rule>& rules() const { return rules_; }
  /// The rules in the format of add().
  std::string text() const;
  /// Packed form of a matrix [., k] requested in `compute`: bf16, or i8 for routed experts; f32
  /// stays. `encoder`: a text encoder's matrix. Throws Error(usage) for an odd k in int4.
  ops::WeightForm form(const std::string& name, ops::DType compute, int64_t k, bool encoder) const;
  /// The form of routed experts.
  Bits experts() const;

 private:
  Bits bits_of(const std::string& name, ProductKind kind, bool encoder) const;
  std::vector<Rule> rules_;
};

/// True if a name matches a pattern with '*' as wildcard.
bool matches_rule(std::string_view name, std::string_view pattern);
/// "bf16", "int8", "int4".
const char* name_of(QuantiseRules::Bits bits);

}  // namespace tessera::load
