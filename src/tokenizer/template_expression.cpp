#include "tokenizer/template_expression.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::tokenizer {

using base::Json;

// op: "lit", "name", ".", "[]", "[:]", "list", "dict", "call", "|", "is", "?:", unary "not" "neg",
// and the binary operators by themselves.
struct Expression::Tree {
  std::string op, text;
  Json literal;
  std::vector<std::unique_ptr<Tree>> parts;  // may hold null (an open end of a slice)
  std::vector<std::string> keys;             // of keyword arguments, "" for others
  std::string where;
};

namespace {

using Tree = Expression::Tree;
using TreePtr = std::unique_ptr<Tree>;

const Json kUndefined(Json::value_t::discarded);

struct Token {
  enum class Kind { end, name, text, number, sign } kind = Kind::end;
  std::string text;
};

std::vector<Token> tokens_of(const std::string& s, const std::string& where) {
  std::vector<Token> out;
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (std::isspace(c)) {
      ++i;
    } else if (std::isalpha(c) || c == '_') {
      const size_t from = i;
      while (i < s.size() && (std::isalnum(static_cast<unsigned char>(s[i])) || s[i] == '_')) ++i;
      out.push_back({Token::Kind::name, s.substr(from, i - from)});
    } else if (std::isdigit(c)) {
      const size_t from = i;
      while (i < s.size() && (std::isdigit(static_cast<unsigned char>(s[i])) || s[i] == '.')) ++i;
      out.push_back({Token::Kind::number, s.substr(from, i - from)});
    } else if (c == '"' || c == '\'') {
      std::string text;
      for (++i; i < s.size() && s[i] != char(c); ++i) {
        if (s[i] != '\\' || i + 1 >= s.size())
          text.push_back(s[i]);
        else if (s[++i] == 'n')
          text.push_back('\n');
        else if (s[i] == 't')
          text.push_back('\t');
        else if (s[i] == 'r')
          text.push_back('\r');
        else
          text.push_back(s[i]);
      }
      require(i < s.size(), ErrorCode::model, "{}: a text is not closed", where);
      ++i;
      out.push_back({Token::Kind::text, text});
    } else {
      static const char* const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
      std::string sign(1, s[i]);
      for (const char* pair : pairs)
        if (s.compare(i, 2, pair) == 0) sign = pair;
      i += sign.size();
      out.push_back({Token::Kind::sign, sign});
    }
  }
  out.push_back({});
  return out;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& where)
      : tokens_(tokens_of(text, where)), where_(where) {}
  TreePtr all() {
    TreePtr tree = ternary();
    if (now().kind != Token::Kind::end) refuse(now().text);
    return tree;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  bool take(const std::string& text) {
    const bool word = now().kind == Token::Kind::name || now().kind == Token::Kind::sign;
    if (!word || now().text != text) return false;
    ++at_;
    return true;
  }
  void expect(const std::string& text) {
    if (!take(text)) refuse(now().text);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorCode::model, "{}: {} is not supported in chat templates; use --raw", where_,
         base::printable(what.empty() ? "what is missing" : what));
  }
  TreePtr make(const std::string& op, TreePtr a = nullptr, TreePtr b = nullptr) const {
    auto tree = std::make_unique<Tree>();
    tree->op = op;
    tree->where = where_;
    if (a) tree->parts.push_back(std::move(a));
    if (b) tree->parts.push_back(std::move(b));
    return tree;
  }

  TreePtr ternary() {
    require(++depth_ < 200, ErrorCode::model, "{}: an expression stands more than 200 deep",
            where_);
    TreePtr value = either();
    if (take("if")) {
      TreePtr tree = make("?:", either(), std::move(value));
      if (take("else")) tree->parts.push_back(ternary());
      value = std::move(tree);
    }
    --depth_;
    return value;
  }
  TreePtr either() {
    TreePtr left = both();
    while (take("or")) left = make("or", std::move(left), both());
    return left;
  }
  TreePtr both() {
    TreePtr left = negated();
    while (take("and")) left = make("and", std::move(left), negated());
    return left;
  }
  TreePtr negated() {
    if (!take("not")) return compared();
    require(++depth_ < 200, ErrorCode::model, "{}: an expression stands more than 200 deep",
            where_);
    TreePtr tree = make("not", negated());
    --depth_;
    return tree;
  }
  TreePtr compared() {
    TreePtr left = sum();
    for (;;) {
      const std::string op = now().text;
      if (op == "not" && tokens_[at_ + 1].text == "in") {
        at_ += 2;
        left = make("not", make("in", std::move(left), sum()));
      } else if (take("is")) {
        left = test(std::move(left));
      } else if (take("==") || take("!=") || take("<=") || take(">=") || take("<") || take(">") ||
                 take("in")) {
        left = make(op, std::move(left), sum());
      } else {
        return left;
      }
    }
  }
  TreePtr test(TreePtr left) {
    const bool inverted = take("not");
    static const char* const known[] = {"defined", "undefined", "none",     "string",
                                        "mapping", "iterable",  "sequence", "boolean",
                                        "number",  "true",      "false"};
    const std::string name = now().text;
    if (std::find(std::begin(known), std::end(known), name) == std::end(known))
      refuse("the test '" + name + "'");
    ++at_;
    TreePtr tree = make("is", std::move(left));
    tree->text = name;
    return inverted ? make("not", std::move(tree)) : std::move(tree);
  }
  TreePtr sum() {
    TreePtr left = product();
    for (;;) {
      const std::string op = now().text;
      if (!take("+") && !take("-") && !take("~")) return left;
      left = make(op, std::move(left), product());
    }
  }
  TreePtr product() {
    TreePtr left = with_sign();
    for (;;) {
      const std::string op = now().text;
      if (!take("*") && !take("%") && !take("//")) return left;
      left = make(op, std::move(left), with_sign());
    }
  }
  TreePtr with_sign() {
    if (take("-")) return make("neg", postfix());
    return postfix();
  }
  TreePtr postfix() {
    TreePtr value = atom();
    for (;;) {
      if (take(".")) {
        value = make(".", std::move(value));
        value->text = word();
      } else if (take("[")) {
        value = index(std::move(value));
      } else if (take("(")) {
        value = make("call", std::move(value));
        arguments(*value);
      } else if (take("|")) {
        static const char* const known[] = {"trim", "length", "upper",   "lower",
                                            "join", "tojson", "string",  "first",
                                            "last", "list",   "default", "int"};
        value = make("|", std::move(value));
        value->text = word();
        if (std::find(std::begin(known), std::end(known), value->text) == std::end(known))
          refuse("the filter '" + value->text + "'");
        value->keys.push_back("");
        if (take("(")) arguments(*value);
      } else {
        return value;
      }
    }
  }
  TreePtr index(TreePtr of) {
    TreePtr from = now().text == ":" ? nullptr : ternary();
    if (!take(":")) {
      expect("]");
      return make("[]", std::move(of), std::move(from));
    }
    TreePtr tree = make("[:]", std::move(of));
    tree->parts.push_back(std::move(from));
    tree->parts.push_back(now().text == "]" || now().text == ":" ? nullptr : ternary());
    if (take(":")) tree->parts.push_back(ternary());
    expect("]");
    return tree;
  }
  void arguments(Tree& call) {
    if (call.keys.empty()) call.keys.push_back("");  // of what is called
    while (!take(")")) {
      std::string key;
      if (now().kind == Token::Kind::name && tokens_[at_ + 1].text == "=") {
        key = word();
        expect("=");
      }
      call.parts.push_back(ternary());
      call.keys.push_back(key);
      if (now().text != ")") expect(",");
    }
  }
  std::string word() {
    if (now().kind != Token::Kind::name) refuse(now().text);
    return tokens_[at_++].text;
  }
  TreePtr atom() {
    const Token token = now();
    if (take("(")) {
      TreePtr inside = ternary();
      expect(")");
      return inside;
    }
    if (take("[")) {
      TreePtr list = make("list");
      while (!take("]")) {
        list->parts.push_back(ternary());
        if (now().text != "]") expect(",");
      }
      return list;
    }
    if (take("{")) {
      TreePtr dict = make("dict");
      while (!take("}")) {
        dict->parts.push_back(ternary());
        expect(":");
        dict->parts.push_back(ternary());
        if (now().text != "}") expect(",");
      }
      return dict;
    }
    if (token.kind == Token::Kind::end || token.kind == Token::Kind::sign) refuse(token.text);
    ++at_;
    TreePtr tree = make("lit");
    if (token.kind == Token::Kind::text)
      tree->literal = token.text;
    else if (token.kind == Token::Kind::number && token.text.find('.') != std::string::npos)
      tree->literal = std::stod(token.text);
    else if (token.kind == Token::Kind::number && token.text.size() < 18)
      tree->literal = std::stoll(token.text);
    else if (token.text == "true" || token.text == "True")
      tree->literal = true;
    else if (token.text == "false" || token.text == "False")
      tree->literal = false;
    else if (token.text == "none" || token.text == "None")
      tree->literal = nullptr;
    else if (token.kind == Token::Kind::number)
      refuse(token.text);
    else {
      tree->op = "name";
      tree->text = token.text;
    }
    return tree;
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0;
};

[[noreturn]] void misfit(const Tree& tree, const std::string& what) {
  fail(ErrorCode::usage, "{}: {}", tree.where, what);
}

std::string stripped(const std::string& text, bool left, bool right, const std::string& what) {
  size_t from = 0, to = text.size();
  while (left && from < to && what.find(text[from]) != std::string::npos) ++from;
  while (right && to > from && what.find(text[to - 1]) != std::string::npos) --to;
  return text.substr(from, to - from);
}

Json evaluate(const Tree& t, const Json& scope);

Json attribute(const Json& of, const std::string& name) {
  if (!of.is_object()) return kUndefined;
  const auto found = of.find(name);
  return found == of.end() ? kUndefined : *found;
}

Json element(const Tree& t, const Json& of, const Json& key) {
  if (key.is_string()) return attribute(of, key.get<std::string>());
  if (!key.is_number_integer()) misfit(t, "an index is neither text nor a whole number");
  const auto size = static_cast<int64_t>(of.is_array()    ? of.size()
                                         : of.is_string() ? of.get_ref<const std::string&>().size()
                                                          : 0);
  int64_t i = key.get<int64_t>();
  if (i < 0) i += size;
  if (i < 0 || i >= size) return kUndefined;
  if (of.is_array()) return of[static_cast<size_t>(i)];
  return std::string(1, of.get_ref<const std::string&>()[static_cast<size_t>(i)]);
}

Json slice(const Tree& t, const Json& scope) {
  const Json of = evaluate(*t.parts[0], scope);
  const bool text = of.is_string();
  if (!text && !of.is_array()) misfit(t, "a slice of what is no list and no text");
  const auto size =
      static_cast<int64_t>(text ? of.get_ref<const std::string&>().size() : of.size());
  auto bound = [&](size_t i, int64_t otherwise) {
    if (i >= t.parts.size() || !t.parts[i]) return otherwise;
    const Json value = evaluate(*t.parts[i], scope);
    if (!value.is_number_integer()) misfit(t, "a bound of a slice is no whole number");
    const int64_t at = value.get<int64_t>();
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  if (t.parts.size() > 3) {  // only the reversal [::-1]
    const Json step = evaluate(*t.parts[3], scope);
    if (t.parts[1] || t.parts[2] || step != -1 || text) misfit(t, "a slice with this step");
    Json reversed = Json::array();
    for (auto item = of.rbegin(); item != of.rend(); ++item) reversed.push_back(*item);
    return reversed;
  }
  const int64_t from = bound(1, 0), to = std::max(from, bound(2, size));
  if (text) return of.get_ref<const std::string&>().substr(size_t(from), size_t(to - from));
  return Json(Json::array_t(of.begin() + from, of.begin() + to));
}

Json method(const Tree& t, const std::string& name, const Json& of, const std::vector<Json>& args) {
  if (of.is_object() && name == "get" && !args.empty() && args[0].is_string()) {
    const Json found = attribute(of, args[0].get<std::string>());
    return !found.is_discarded() ? found : args.size() > 1 ? args[1] : Json(nullptr);
  }
  if (of.is_object() && name == "items" && args.empty()) return of;
  if (!of.is_string()) misfit(t, "the method '" + name + "' of what is no text");
  const std::string& text = of.get_ref<const std::string&>();
  const std::string given = !args.empty() && args[0].is_string() ? args[0].get<std::string>() : "";
  const std::string blanks = args.empty() ? " \t\r\n" : given;
  if (name == "strip") return stripped(text, true, true, blanks);
  if (name == "lstrip") return stripped(text, true, false, blanks);
  if (name == "rstrip") return stripped(text, false, true, blanks);
  if (name == "startswith") return text.starts_with(given);
  if (name == "endswith") return text.ends_with(given);
  if (name == "upper" || name == "lower") {
    std::string out = text;
    for (char& c : out) c = char(name == "upper" ? std::toupper(c) : std::tolower(c));
    return out;
  }
  if (name == "split" && !given.empty()) {
    Json parts = Json::array();
    size_t at = 0;
    for (size_t next; (next = text.find(given, at)) != std::string::npos; at = next + given.size())
      parts.push_back(text.substr(at, next - at));
    parts.push_back(text.substr(at));
    return parts;
  }
  fail(ErrorCode::model, "{}: the method '{}' is not supported in chat templates; use --raw",
       t.where, name);
}

Json call(const Tree& t, const Json& scope) {
  const Tree& callee = *t.parts[0];
  std::vector<Json> args;
  for (size_t i = 1; i < t.parts.size(); ++i) args.push_back(evaluate(*t.parts[i], scope));
  if (callee.op == ".") return method(t, callee.text, evaluate(*callee.parts[0], scope), args);
  if (callee.op == "name" && callee.text == "namespace") {
    Json made{{kNamespace, true}};
    for (size_t i = 1; i < t.parts.size(); ++i) made[t.keys[i]] = args[i - 1];
    return made;
  }
  if (callee.op == "name" && callee.text == "raise_exception")
    fail(ErrorCode::usage, "the chat template refuses: {}", args.empty() ? "" : shown(args[0]));
  if (callee.op == "name" && callee.text == "range" && args.size() == 1 &&
      args[0].is_number_integer() && args[0].get<int64_t>() < 100000) {
    Json list = Json::array();
    for (int64_t i = 0; i < args[0].get<int64_t>(); ++i) list.push_back(i);
    return list;
  }
  fail(ErrorCode::model, "{}: the function '{}' is not supported in chat templates; use --raw",
       t.where, callee.text);
}

Json filtered(const Tree& t, const Json& scope) {
  Json of = evaluate(*t.parts[0], scope);
  const Json given = t.parts.size() > 1 ? evaluate(*t.parts[1], scope) : kUndefined;
  if (t.text == "default") return of.is_discarded() ? given : of;
  if (t.text == "tojson")
    return of.is_discarded() ? Json("null")
                             : Json(of.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (t.text == "string") return shown(of);
  if (t.text == "int") return of.is_number() ? Json(of.get<int64_t>()) : Json(0);
  if (t.text == "list") return of;
  if (t.text == "length")
    return of.is_string() ? of.get_ref<const std::string&>().size() : of.size();
  if (t.text == "first") return element(t, of, 0);
  if (t.text == "last") return element(t, of, -1);
  if (t.text == "join") {
    std::string out;
    for (size_t i = 0; i < of.size(); ++i)
      out += (i && given.is_string() ? given.get<std::string>() : "") + shown(of[i]);
    return out;
  }
  return method(t, t.text == "trim" ? "strip" : t.text, of.is_string() ? of : Json(shown(of)), {});
}

bool tested(const std::string& name, const Json& v) {
  if (name == "defined") return !v.is_discarded();
  if (name == "undefined") return v.is_discarded();
  if (name == "none") return v.is_null();
  if (name == "string") return v.is_string();
  if (name == "mapping") return v.is_object();
  if (name == "boolean") return v.is_boolean();
  if (name == "number") return v.is_number();
  if (name == "true") return v == Json(true);
  if (name == "false") return v == Json(false);
  return v.is_array() || v.is_string() || v.is_object();  // iterable, sequence
}

bool contains(const Tree& t, const Json& part, const Json& whole) {
  if (whole.is_string() && part.is_string())
    return whole.get_ref<const std::string&>().find(part.get_ref<const std::string&>()) !=
           std::string::npos;
  if (whole.is_object() && part.is_string()) return whole.contains(part.get<std::string>());
  if (whole.is_array()) return std::find(whole.begin(), whole.end(), part) != whole.end();
  misfit(t, "'in' what is no list and no text");
}

Json binary(const Tree& t, const Json& a, const Json& b) {
  const std::string& op = t.op;
  if (op == "==") return a == b;
  if (op == "!=") return !(a == b);
  if (op == "in") return contains(t, a, b);
  if (op == "~") return shown(a) + shown(b);
  if (op == "+" && a.is_string() && b.is_string())
    return a.get<std::string>() + b.get<std::string>();
  if (op == "+" && a.is_array() && b.is_array()) {
    Json both = a;
    for (const auto& item : b) both.push_back(item);
    return both;
  }
  if (a.is_number_integer() && b.is_number_integer()) {
    const int64_t x = a.get<int64_t>(), y = b.get<int64_t>();
    if ((op == "%" || op == "//") && y <= 0) misfit(t, "a division by what is not above zero");
    if (op == "%") return ((x % y) + y) % y;
    if (op == "//") return (x - (((x % y) + y) % y)) / y;
    int64_t out = 0;
    const bool far = op == "+"   ? __builtin_add_overflow(x, y, &out)
                     : op == "-" ? __builtin_sub_overflow(x, y, &out)
                                 : op == "*" && __builtin_mul_overflow(x, y, &out);
    if (far) misfit(t, "a number is out of range");
    if (op == "+" || op == "-" || op == "*") return out;
  }
  if (a.type() != b.type() && !(a.is_number() && b.is_number()))
    misfit(t, "'" + op + "' between values of different kinds");
  if (op == "<") return a < b;
  if (op == ">") return b < a;
  if (op == "<=") return a <= b;
  if (op == ">=") return b <= a;
  misfit(t, "'" + op + "' of these values");
}

Json evaluate(const Tree& t, const Json& scope) {
  const std::string& op = t.op;
  if (op == "lit") return t.literal;
  if (op == "name") return attribute(scope, t.text);
  if (op == ".") return attribute(evaluate(*t.parts[0], scope), t.text);
  if (op == "[]") return element(t, evaluate(*t.parts[0], scope), evaluate(*t.parts[1], scope));
  if (op == "[:]") return slice(t, scope);
  if (op == "call") return call(t, scope);
  if (op == "|") return filtered(t, scope);
  if (op == "is") return tested(t.text, evaluate(*t.parts[0], scope));
  if (op == "not") return !truth(evaluate(*t.parts[0], scope));
  if (op == "neg") {
    const Json value = evaluate(*t.parts[0], scope);
    if (!value.is_number_integer()) misfit(t, "'-' of what is no whole number");
    return -value.get<int64_t>();
  }
  if (op == "?:") {
    if (truth(evaluate(*t.parts[0], scope))) return evaluate(*t.parts[1], scope);
    return t.parts.size() > 2 ? evaluate(*t.parts[2], scope) : kUndefined;
  }
  if (op == "and" || op == "or") {
    const Json left = evaluate(*t.parts[0], scope);
    return truth(left) == (op == "or") ? left : evaluate(*t.parts[1], scope);
  }
  if (op == "list") {
    Json list = Json::array();
    for (const auto& part : t.parts) list.push_back(evaluate(*part, scope));
    return list;
  }
  if (op == "dict") {
    Json dict = Json::object();
    for (size_t i = 0; i + 1 < t.parts.size(); i += 2)
      dict[shown(evaluate(*t.parts[i], scope))] = evaluate(*t.parts[i + 1], scope);
    return dict;
  }
  return binary(t, evaluate(*t.parts[0], scope), evaluate(*t.parts[1], scope));
}

}  // namespace

Expression::Expression(const std::string& text, const std::string& where)
    : tree_(Reader(text, where).all()) {}
Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;

Json Expression::value(const Json& scope) const { return evaluate(*tree_, scope); }

bool truth(const Json& v) {
  if (v.is_discarded() || v.is_null()) return false;
  if (v.is_boolean()) return v.get<bool>();
  if (v.is_number()) return v.get<double>() != 0;
  if (v.is_string()) return !v.get_ref<const std::string&>().empty();
  return !v.empty();
}

std::string shown(const Json& v) {
  if (v.is_discarded()) return "";
  if (v.is_string()) return v.get<std::string>();
  if (v.is_null()) return "None";
  if (v.is_boolean()) return v.get<bool>() ? "True" : "False";
  return v.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::tokenizer
