#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// How a piece of text becomes tokens.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a piece of valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
  /// The id of a token, if there is one of this text.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// The token of an id as the vocabulary spells it; "": there is none.
  virtual std::string text_of(int32_t id) const = 0;
  /// One more than the largest id.
  virtual int64_t size() const = 0;
};

}  // namespace tessera::tokenizer
