#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/matmul.h"

namespace tessera::load {

/// The layer of a product, by the name of its weight: a block's attention, its MLP, or another one
/// (modulations, first and last layers, long skips).
enum class ProductKind : uint8_t { other, attention, mlp };
ProductKind product_kind(std::string_view name);

/// Chooses the weights of a pipeline that are quantised for products with int8 activations. The
/// last rule that matches a weight applies.
class QuantiseRules {
 public:
  enum class Bits : uint8_t { none, int8, int4 };
  struct Rule {
    /// "attn", "mlp" or "experts" (routed ones); "text", "text.attn" or "text.mlp" of text
    /// encoders; or a weight's name, in which '*' stands for anything.
    std::string of;
    Bits bits = Bits::none;
  };

  QuantiseRules() = default;
  /// All products of blocks and text encoders in so many bits, and routed experts.
  static QuantiseRules all_in(Bits bits);
  /// Behind those that there are: "attn=int8,mlp=int4,transformer_blocks.0.*=bf16". Throws
  /// Error(usage) that names `option`.
  void add(const std::string& text, const std::string& option);

  bool empty() const { return rules_.empty(); }
  const std::vector<Rule>& rules() const { return rules_; }
  /// As add() reads it.
  std::string text() const;
  /// In what a matrix [., k] is packed that a network asks for in `compute`: bf16, or i8 of routed
  /// experts; f32 stays. `encoder`: of a text encoder. Throws Error(usage) for an odd k in int4.
  ops::WeightForm form(const std::string& name, ops::DType compute, int64_t k, bool encoder) const;
  /// The form of routed experts.
  Bits experts() const;

 private:
  Bits bits_of(const std::string& name, ProductKind kind, bool encoder) const;
  std::vector<Rule> rules_;
};

/// Whether a name is one of a pattern in which '*' stands for anything.
bool matches_rule(std::string_view name, std::string_view pattern);
/// "bf16", "int8", "int4".
const char* name_of(QuantiseRules::Bits bits);

}  // namespace tessera::load
