#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/text_allowance.h"

namespace tessera::tokenizer {

/// Steps of a normalizer or a pre-tokenizer, those of sequences in sequences together.
inline constexpr size_t kMostSteps = 64;

/// Text before it is cut into pieces.
using Normalizer = std::function<std::string(std::string text, TextAllowance& allowance)>;
/// Cuts a piece into pieces.
using PreTokenizer = std::function<void(std::string_view piece, std::vector<std::string>& pieces,
                                        TextAllowance& allowance)>;

/// The "normalizer" of a tokenizer.json; null: none. Throws Error(model) naming `where` and a kind
/// that is not known.
Normalizer parse_normalizer(const base::Json& json, const std::string& where);
/// The "pre_tokenizer" of a tokenizer.json; null: none. Throws Error(model) alike.
PreTokenizer parse_pre_tokenizer(const base::Json& json, const std::string& where);

/// Throws Error(model) for more than kMostSteps, or for regular expressions that are too long.
void check_steps(const base::Json& json, const std::string& where);

/// A string of a JSON object; throws Error(model) if it is there and none, or missing without
/// `missing`.
std::string string_in(const base::Json& json, const char* key, const std::string& where,
                      const char* missing = nullptr);
/// The same for true or false.
bool flag_in(const base::Json& json, const char* key, const std::string& where, bool missing);

}  // namespace tessera::tokenizer
