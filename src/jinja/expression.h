#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/tree.h"

namespace tessera::jinja {

/// Iterates over the tokens of a template.
class TokenStream {
 public:
  /// `tokens` ends with Kind::end. `where` must outlive the stream.
  TokenStream(std::vector<TemplateToken> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  const TemplateToken& now() const { return tokens_[at_]; }
  const TemplateToken& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  TemplateToken take();
  bool is(TemplateToken::Kind kind) const { return now().kind == kind; }
  bool is_sign(const char* text) const;
  bool is_name(const char* text) const;
  bool take_sign(const char* text);
  bool take_name(const char* text);
  void expect_sign(const char* text);
  void expect_name(const char* text);
  /// A name other than a keyword.
  std::string name();
  /// Throws Error(model): `problem` is not supported.
  [[noreturn]] void refuse(const std::string& problem) const;
  /// Same for the current token.
  [[noreturn]] void refuse_token() const;
  const std::string& where() const { return where_; }

 private:
  std::vector<TemplateToken> tokens_;
  const std::string& where_;
  size_t at_ = 0;
};

/// Parses expressions with Jinja's precedence. Throws Error(model) for unsupported syntax, and for
/// expressions nested or chained too deeply.
class ExpressionReader {
 public:
  explicit ExpressionReader(TokenStream& tokens) : tokens_(tokens) {}
  /// An expression; several with commas form a tuple. Without `choice`, "if" ends the expression.
  ExpressionPtr tuple(bool choice = true);
  ExpressionPtr expression(bool choice = true);
  /// Parses the filters "a | b" after the word "filter" or the name of a set block.
  ExpressionPtr filters();

 private:
  ExpressionPtr make(Expression::Op op, ExpressionPtr a = nullptr, ExpressionPtr b = nullptr) const;
  void grew(Expression& tree, size_t from = 0) const;
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negated();
  ExpressionPtr compared();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr with_sign(bool filters);
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filtered(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  ExpressionPtr atom();
  ExpressionPtr literal(TemplateToken token);
  ExpressionPtr index(ExpressionPtr of);
  ExpressionPtr dict();
  void arguments(Expression& call);
  struct Level;

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace tessera::jinja
