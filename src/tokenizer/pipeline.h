#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/text_allowance.h"

namespace tessera::tokenizer {

/// Maximum steps of a normalizer or a pre-tokenizer, including nested sequences.
inline constexpr size_t kMostSteps = 64;

/// Transforms text before pre-tokenisation.
using Normalizer = std::function<std::string(std::string text, TextAllowance& allowance)>;
/// Splits a piece into pieces.
using PreTokenizer = std::function<void(std::string_view piece, std::vector<std::string>& pieces,
                                        TextAllowance& allowance)>;

/// Parses the "normalizer" of a tokenizer.json; null: none. Throws Error(model) naming `where` and
/// an unknown kind.
Normalizer parse_normalizer(const base::Json& json, const std::string& where);
/// Parses the "pre_tokenizer" of a tokenizer.json; null: none. Throws Error(model) alike.
PreTokenizer parse_pre_tokenizer(const base::Json& json, const std::string& where);

/// Throws Error(model) for more than kMostSteps, or for regular expressions that are too long.
void check_steps(const base::Json& json, const std::string& where);

/// A string of a JSON object; throws Error(model) if not a string, or if absent without a
/// `fallback`.
std::string string_in(const base::Json& json, const char* key, const std::string& where,
                      const char* fallback = nullptr);
/// Same for a boolean.
bool flag_in(const base::Json& json, const char* key, const std::string& where, bool fallback);

}  // namespace tessera::tokenizer
