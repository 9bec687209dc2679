#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace tessera::tokenizer {

/// The key that marks a Jinja namespace() among JSON objects.
inline constexpr const char* kNamespace = "\x01namespace";

/// An expression of a chat template, in the subset that ChatTemplate names. What is undefined is a
/// discarded JSON value.
class Expression {
 public:
  /// Throws Error(model) naming `where` and what is not supported.
  Expression(const std::string& text, const std::string& where);
  ~Expression();
  Expression(Expression&&) noexcept;

  base::Json value(const base::Json& scope) const;

  struct Tree;

 private:
  std::unique_ptr<Tree> tree_;
};

/// Jinja's truth: not undefined, null, false, zero or empty.
bool truth(const base::Json& value);
/// A value as {{ }} prints it.
std::string shown(const base::Json& value);

}  // namespace tessera::tokenizer
