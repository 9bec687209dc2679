#include "jinja/expression.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "jinja/filters.h"

namespace tessera::jinja {
namespace {

using Kind = TemplateToken::Kind;
using Op = Expression::Op;

constexpr int kDeepest = 200;
constexpr size_t kMostArguments = 100;  // "map" may pass them on singly

}  // namespace

TemplateToken TokenStream::take() {
  base::check_stop();
  TemplateToken token = now();
  if (token.kind != Kind::end) ++at_;
  return token;
}
bool TokenStream::is_sign(const char* text) const {
  return now().kind == Kind::sign && now().text == text;
}
bool TokenStream::is_name(const char* text) const {
  return now().kind == Kind::name && now().text == text;
}
bool TokenStream::take_sign(const char* text) {
  if (!is_sign(text)) return false;
  ++at_;
  return true;
}
bool TokenStream::take_name(const char* text) {
  if (!is_name(text)) return false;
  ++at_;
  return true;
}
void TokenStream::expect_sign(const char* text) {
  if (!take_sign(text)) refuse_token();
}
void TokenStream::expect_name(const char* text) {
  if (!take_name(text)) refuse_token();
}
std::string TokenStream::name() {
  static const char* const kWords[] = {"if", "else", "elif",  "for",  "in",   "is",    "not", "and",
                                       "or", "true", "false", "none", "True", "False", "None"};
  const bool word = std::find(std::begin(kWords), std::end(kWords), now().text) != std::end(kWords);
  if (now().kind != Kind::name || word) refuse_token();
  return take().text;
}
void TokenStream::refuse(const std::string& problem) const {
  fail(ErrorCode::model, "{}: line {}: {} is not supported in chat templates; use `raw`", where_,
       now().line, problem);
}
void TokenStream::refuse_token() const {
  switch (now().kind) {
    case Kind::end: refuse("a template that ends inside a block or a tag");
    case Kind::print_end:
    case Kind::statement_end: refuse("a tag where something is missing");
    default: refuse(base::printable(now().text) + " at this place");
  }
}

// Counts the nesting depth of the reader's calls.
struct ExpressionReader::Level {
  explicit Level(ExpressionReader& of) : reader(of) {
    if (++reader.depth_ > kDeepest) reader.tokens_.refuse("an expression that nests 200 deep");
  }
  ~Level() { --reader.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ExpressionReader& reader;
};

ExpressionPtr ExpressionReader::make(Op op, ExpressionPtr a, ExpressionPtr b) const {
  auto tree = std::make_unique<Expression>();
  tree->op = op;
  if (a) tree->parts.push_back(std::move(a));
  if (b) tree->parts.push_back(std::move(b));
  grew(*tree);
  return tree;
}

// Chains like a|b|c are as deep as they are long.
void ExpressionReader::grew(Expression& tree, size_t from) const {
  for (size_t i = from; i < tree.parts.size(); ++i)
    if (tree.parts[i]) tree.depth = std::max(tree.depth, tree.parts[i]->depth + 1);
  if (tree.depth > kDeepest) tokens_.refuse("an expression of more than 200 links");
}

ExpressionPtr ExpressionReader::tuple(bool choice) {
  ExpressionPtr first = expression(choice);
  if (!tokens_.is_sign(",")) return first;
  ExpressionPtr tree = make(Op::tuple, std::move(first));
  while (tokens_.take_sign(",")) {
    if (!tokens_.is(Kind::name) && !tokens_.is(Kind::text) && !tokens_.is(Kind::whole) &&
        !tokens_.is(Kind::real) && !tokens_.is_sign("(") && !tokens_.is_sign("[") &&
        !tokens_.is_sign("{") && !tokens_.is_sign("-") && !tokens_.is_sign("+"))
      break;
    tree->parts.push_back(expression(choice));
  }
  grew(*tree);
  return tree;
}

ExpressionPtr ExpressionReader::expression(bool choice) {
  const Level level(*this);
  ExpressionPtr value = either();
  while (choice && tokens_.take_name("if")) {
    ExpressionPtr tree = make(Op::choice, either(), std::move(value));
    if (tokens_.take_name("else")) tree->parts.push_back(expression());
    grew(*tree);
    value = std::move(tree);
  }
  return value;
}

ExpressionPtr ExpressionReader::filters() {
  ExpressionPtr value;
  do value = filter(std::move(value));
  while (tokens_.take_sign("|"));
  return value;
}

ExpressionPtr ExpressionReader::either() {
  ExpressionPtr left = both();
  while (tokens_.take_name("or")) left = make(Op::either, std::move(left), both());
  return left;
}

ExpressionPtr ExpressionReader::both() {
  ExpressionPtr left = negated();
  while (tokens_.take_name("and")) left = make(Op::both, std::move(left), negated());
  return left;
}

ExpressionPtr ExpressionReader::negated() {
  if (!tokens_.take_name("not")) return compared();
  const Level level(*this);
  return make(Op::negation, negated());
}

ExpressionPtr ExpressionReader::compared() {
  ExpressionPtr first = sum();
  ExpressionPtr tree;
  for (;;) {
    std::string key;
    for (const char* sign : {"==", "!=", "<=", ">=", "<", ">"})
      if (key.empty() && tokens_.take_sign(sign)) key = sign;
    if (key.empty() && tokens_.take_name("in")) key = "in";
    if (key.empty() && tokens_.is_name("not") && tokens_.next().text == "in") {
      tokens_.take();
      tokens_.take();
      key = "not in";
    }
    if (key.empty()) return tree ? std::move(tree) : std::move(first);
    if (!tree) tree = make(Op::compare, std::move(first));
    tree->keys.push_back(key);
    tree->parts.push_back(sum());
    grew(*tree, tree->parts.size() - 1);
  }
}

ExpressionPtr ExpressionReader::sum() {
  ExpressionPtr left = concat();
  while (tokens_.is_sign("+") || tokens_.is_sign("-")) {
    const std::string sign = tokens_.take().text;
    left = make(Op::arithmetic, std::move(left), concat());
    left->text = sign;
  }
  return left;
}

ExpressionPtr ExpressionReader::concat() {
  ExpressionPtr first = product();
  if (!tokens_.is_sign("~")) return first;
  ExpressionPtr tree = make(Op::concat, std::move(first));
  while (tokens_.take_sign("~")) tree->parts.push_back(product());
  grew(*tree);
  return tree;
}

ExpressionPtr ExpressionReader::product() {
  ExpressionPtr left = power();
  while (tokens_.is_sign("*") || tokens_.is_sign("/") || tokens_.is_sign("//") ||
         tokens_.is_sign("%")) {
    const std::string sign = tokens_.take().text;
    left = make(Op::arithmetic, std::move(left), power());
    left->text = sign;
  }
  return left;
}

ExpressionPtr ExpressionReader::power() {
  ExpressionPtr left = with_sign(true);
  while (tokens_.take_sign("**")) {
    left = make(Op::arithmetic, std::move(left), with_sign(true));
    left->text = "**";
  }
  return left;
}

ExpressionPtr ExpressionReader::with_sign(bool filters) {
  const Level level(*this);
  ExpressionPtr value;
  if (tokens_.take_sign("-"))
    value = make(Op::minus, with_sign(false));
  else if (tokens_.take_sign("+"))
    value = make(Op::plus, with_sign(false));
  else
    value = atom();
  value = postfix(std::move(value));
  return filters ? filtered(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionReader::postfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.take_sign(".")) {
      if (tokens_.is(Kind::whole)) {
        value = make(Op::element, std::move(value), literal(tokens_.take()));
        continue;
      }
      if (!tokens_.is(Kind::name)) tokens_.refuse_token();
      value = make(Op::attribute, std::move(value));
      value->text = tokens_.take().text;
    } else if (tokens_.take_sign("[")) {
      value = index(std::move(value));
    } else if (tokens_.take_sign("(")) {
      value = make(Op::call, std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionReader::filtered(ExpressionPtr value) {
  for (;;) {
    if (tokens_.take_sign("|")) {
      value = filter(std::move(value));
    } else if (tokens_.take_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.take_sign("(")) {
      value = make(Op::call, std::move(value));
      arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionReader::filter(ExpressionPtr value) {
  ExpressionPtr tree = make(Op::filter);
  tree->parts.push_back(std::move(value));
  if (!tokens_.is(Kind::name)) tokens_.refuse_token();
  tree->text = tokens_.now().text;
  if (!is_filter(tree->text)) tokens_.refuse("the filter " + base::printable(tree->text));
  tokens_.take();
  if (tokens_.take_sign("(")) arguments(*tree);
  grew(*tree);
  return tree;
}

ExpressionPtr ExpressionReader::test(ExpressionPtr value) {
  const bool inverted = tokens_.take_name("not");
  ExpressionPtr tree = make(Op::test, std::move(value));
  if (!tokens_.is(Kind::name)) tokens_.refuse_token();
  tree->text = tokens_.now().text;
  if (!is_test(tree->text)) tokens_.refuse("the test " + base::printable(tree->text));
  tokens_.take();
  const bool word = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and") ||
                    tokens_.is_name("if") || tokens_.is_name("is") || tokens_.is_name("in") ||
                    tokens_.is_name("not");
  if (tokens_.take_sign("(")) {
    arguments(*tree);
  } else if ((tokens_.is(Kind::name) && !word) || tokens_.is(Kind::text) ||
             tokens_.is(Kind::whole) || tokens_.is(Kind::real) || tokens_.is_sign("[") ||
             tokens_.is_sign("{")) {
    tree->parts.push_back(postfix(atom()));
    tree->keys.emplace_back();
    grew(*tree);
  }
  return inverted ? make(Op::negation, std::move(tree)) : std::move(tree);
}

ExpressionPtr ExpressionReader::index(ExpressionPtr of) {
  ExpressionPtr tree = make(Op::slice, std::move(of));
  const auto part = [&] {
    const bool is_open = tokens_.is_sign(":") || tokens_.is_sign("]");
    tree->parts.push_back(is_open ? nullptr : expression());
  };
  part();
  if (tokens_.is_sign(":")) {
    for (int i = 0; i < 2 && tokens_.take_sign(":"); ++i) part();
    tree->parts.resize(4);
  } else {
    if (!tree->parts[1]) tokens_.refuse_token();
    tree->op = Op::element;
  }
  tokens_.expect_sign("]");
  grew(*tree);
  return tree;
}

void ExpressionReader::arguments(Expression& call) {
  while (!tokens_.take_sign(")")) {
    std::string key;
    if (tokens_.is_sign("*") || tokens_.is_sign("**")) tokens_.refuse("an argument with a star");
    if (tokens_.is(Kind::name) && tokens_.next().kind == Kind::sign && tokens_.next().text == "=") {
      key = tokens_.take().text;
      tokens_.take();
    }
    if (key.empty() && !call.keys.empty() && !call.keys.back().empty())
      tokens_.refuse("an argument behind those with names");
    if (call.keys.size() == kMostArguments) tokens_.refuse("a call with more than 100 arguments");
    call.parts.push_back(expression());
    call.keys.push_back(key);
    if (!tokens_.is_sign(")")) tokens_.expect_sign(",");
  }
  grew(call);
}

ExpressionPtr ExpressionReader::atom() {
  if (tokens_.take_sign("(")) {
    if (tokens_.take_sign(")")) return make(Op::tuple);
    ExpressionPtr inside = tuple();
    tokens_.expect_sign(")");
    return inside;
  }
  if (tokens_.take_sign("[")) {
    ExpressionPtr list = make(Op::list);
    while (!tokens_.take_sign("]")) {
      list->parts.push_back(expression());
      if (!tokens_.is_sign("]")) tokens_.expect_sign(",");
    }
    grew(*list);
    return list;
  }
  if (tokens_.take_sign("{")) return dict();
  const Kind kind = tokens_.now().kind;
  if (kind != Kind::name && kind != Kind::text && kind != Kind::whole && kind != Kind::real)
    tokens_.refuse_token();
  return literal(tokens_.take());
}

ExpressionPtr ExpressionReader::dict() {
  ExpressionPtr dict = make(Op::dict);
  while (!tokens_.take_sign("}")) {
    dict->parts.push_back(expression());
    tokens_.expect_sign(":");
    dict->parts.push_back(expression());
    if (!tokens_.is_sign("}")) tokens_.expect_sign(",");
  }
  grew(*dict);
  return dict;
}

ExpressionPtr ExpressionReader::literal(TemplateToken token) {
  ExpressionPtr tree = make(Op::literal);
  const char* const begin = token.text.data();
  const char* const end = begin + token.text.size();
  if (token.kind == Kind::text) {
    while (tokens_.is(Kind::text)) token.text += tokens_.take().text;
    tree->value = token.text;
  } else if (token.kind == Kind::whole) {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      tokens_.refuse("the number " + base::printable(token.text));
    tree->value = value;
  } else if (token.kind == Kind::real) {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      tokens_.refuse("the number " + base::printable(token.text));
    tree->value = value;
  } else if (token.text == "true" || token.text == "True") {
    tree->value = true;
  } else if (token.text == "false" || token.text == "False") {
    tree->value = false;
  } else if (token.text == "none" || token.text == "None") {
    tree->value = nullptr;
  } else {
    tree->op = Op::name;
    tree->text = token.text;
  }
  return tree;
}

}  // namespace tessera::jinja
