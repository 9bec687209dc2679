#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

/// Splits a piece of text into tokens.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a piece of valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
  /// Id of a token with this text, if any.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Token of an id in the vocabulary's spelling; "": none.
  virtual std::string text_of(int32_t id) const = 0;
  /// Largest id plus one.
  virtual int64_t size() const = 0;
};

}  // namespace tessera::tokenizer
