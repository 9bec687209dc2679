#pragma once

#include <string>
#include <vector>

#include "models/llada.h"
#include "models/token_recipe.h"

namespace tessera::models {

/// Reads a language model's config.json key by key. Every getter throws Error(model) naming the
/// file, the key, its value and what fits.
class TokenConfig {
 public:
  TokenConfig(const base::Json& config, std::string where)
      : config_(config), where_(std::move(where)) {}

  /// Whether the key is there and not null.
  bool has(const char* key) const;
  int64_t integer(const char* key, int64_t low, int64_t high) const;
  int64_t integer_or(const char* key, int64_t low, int64_t high, int64_t otherwise) const;
  double number_or(const char* key, double low, double high, double otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text_or(const char* key, const std::string& otherwise) const;
  /// One id or a list of ids below `vocabulary`; nothing if the key is missing.
  std::vector<int32_t> ids(const char* key, int64_t vocabulary) const;
  /// A list of so many 0 or 1, or one of these for all.
  std::vector<bool> flags(const char* key, size_t count) const;
  /// Refuses the model: `key` has a value that this build does not compute with.
  [[noreturn]] void refuse(const char* key, const std::string& expected) const;
  const std::string& where() const { return where_; }

 private:
  const base::Json& at(const char* key) const;
  const base::Json& config_;
  std::string where_;
};

/// What both families say with the same keys: sizes, norms, rotary, ids.
void read_common(const TokenConfig& read, LladaConfig& c, TokenFacts& facts);

/// A recipe over the shared network.
class LladaRecipe : public TokenRecipe {
 public:
  LladaRecipe(LladaConfig config, TokenFacts facts)
      : config_(std::move(config)), facts_(std::move(facts)) {}
  const TokenFacts& facts() const override { return facts_; }
  int64_t blocks() const override { return config_.layers(); }
  std::unique_ptr<nn::TokenModel> make(const nn::Weights& weights, const nn::Portion& portion,
                                       nn::DType dtype, int block) const override;
  std::vector<std::pair<std::string, std::string>> sizes() const override;
  const LladaConfig& config() const { return config_; }

 private:
  LladaConfig config_;
  TokenFacts facts_;
};

}  // namespace tessera::models
