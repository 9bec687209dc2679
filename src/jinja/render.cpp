#include "jinja/render.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <unordered_map>

#include "base/fail.h"
#include "base/printable.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::check_length;

namespace {

using Kind = Value::Kind;
using Op = Expression::Op;

constexpr int kDeepest = 800;  // a macro call also counts the depth of its surroundings
constexpr int64_t kLongestRange = 100000;

// Names of a block, shadowing the names of enclosing blocks.
struct Scope {
  std::unordered_map<std::string, Value, base::SeededHash, std::equal_to<>> names;
  const Scope* around = nullptr;
};

double power(double x, double y) { return std::pow(x, y); }

Value whole_arithmetic(const std::string& op, int64_t x, int64_t y) {
  const auto fits = [](bool overflow) {
    require(!overflow, ErrorCode::usage, "a number is out of range");
  };
  int64_t out = 0;
  if (op == "+") fits(__builtin_add_overflow(x, y, &out));
  if (op == "-") fits(__builtin_sub_overflow(x, y, &out));
  if (op == "*") fits(__builtin_mul_overflow(x, y, &out));
  if (op == "//" || op == "%") {
    require(y != 0, ErrorCode::usage, "a division by zero");
    fits(y == -1 && x == std::numeric_limits<int64_t>::min());
    const int64_t rest = ((x % y) + y) % y;  // with the divisor's sign
    out = op == "%" ? rest : (x - rest) / y;
  }
  if (op == "**") {
    out = 1;
    if (y < 0) return power(double(x), double(y));
    if (y == 0 || x == 1) return 1;
    if (x == 0 || x == -1) return x == 0 ? 0 : y % 2 == 0 ? 1 : -1;
    for (int64_t i = 0; i < y; ++i) fits(__builtin_mul_overflow(out, x, &out));
  }
  return out;
}

Value arithmetic(const std::string& op, const Value& a, const Value& b, Work& work) {
  for (const Value* v : {&a, &b})
    require(!v->is(Kind::undefined), ErrorCode::usage, "{}", v->why());
  if (a.is_whole() && b.is_whole() && op != "/") return whole_arithmetic(op, a.whole(), b.whole());
  if (a.is_number() && b.is_number()) {
    const double x = a.number(), y = b.number();
    if (op == "+") return x + y;
    if (op == "-") return x - y;
    if (op == "*") return x * y;
    if (op == "**") return power(x, y);
    require(y != 0, ErrorCode::usage, "a division by zero");
    if (op == "/") return x / y;
    const double down = std::floor(x / y);
    return op == "//" ? down : x - down * y;
  }
  if (op == "+" && a.is(Kind::text) && b.is(Kind::text)) {
    work.text(a.text().size() + b.text().size());
    return a.text() + b.text();
  }
  if (op == "+" && a.is(Kind::list) && b.is(Kind::list) && a.is_tuple() == b.is_tuple()) {
    work.spend(a.items().size() + b.items().size());
    std::vector<Value> all = a.items();
    all.insert(all.end(), b.items().begin(), b.items().end());
    return Value(ValueList{std::move(all), a.is_tuple()});
  }
  const bool count_first = a.is_whole();
  const Value &sequence = count_first ? b : a, &count = count_first ? a : b;
  if (op == "*" && count.is_whole() && (sequence.is(Kind::text) || sequence.is(Kind::list))) {
    const auto times = static_cast<size_t>(std::clamp<int64_t>(count.whole(), 0, int64_t{1} << 30));
    work.text(times *
              (sequence.is(Kind::text) ? sequence.text().size() : 16 * sequence.items().size()));
    std::string text;
    std::vector<Value> items;
    for (size_t i = 0; i < times && truth(sequence); ++i) {
      if (sequence.is(Kind::text))
        text += sequence.text();
      else
        items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    }
    return sequence.is(Kind::text) ? Value(text)
                                   : Value(ValueList{std::move(items), sequence.is_tuple()});
  }
  if (op == "%" && a.is(Kind::text))
    fail(ErrorCode::model, "'%' of text is not supported in chat templates; use `raw`");
  fail(ErrorCode::usage, "'{}' between values of the kinds {} and {}", op, kind_name(a),
       kind_name(b));
}

class Renderer {
 public:
  Renderer(const ValueDict& values, std::time_t now, Work work, int& line)
      : now_(now), work_(work), line_(line), scope_(&root_) {
    for (const auto& [name, value] : values.items()) root_.names[name] = value;
  }
  std::string all(const Statements& statements) {
    std::string out;
    run(statements, out);
    return out;
  }

 private:
  enum class Flow { on, next, stop };

  // Increments the call depth for the duration of a call.
  struct Level {
    explicit Level(Renderer& of) : renderer(of) {
      require(++renderer.depth_ <= kDeepest, ErrorCode::usage,
              "the chat template nests, or calls itself, too deep");
    }
    ~Level() { --renderer.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Renderer& renderer;
  };
  // Opens a scope for the duration of a block.
  struct BlockScope {
    BlockScope(Renderer& of, const Scope* around) : renderer(of), before(of.scope_) {
      scope.around = around;
      renderer.scope_ = &scope;
    }
    ~BlockScope() { renderer.scope_ = before; }
    BlockScope(const BlockScope&) = delete;
    BlockScope& operator=(const BlockScope&) = delete;
    Renderer& renderer;
    Scope* before;
    Scope scope;
  };

  void write(const std::string& text, std::string& out) {
    work_.text(text.size());
    out += text;
    check_length(out.size());
  }
  std::string text_of_value(const Value& v) {
    work_.spend(v.weight());
    return shown(v);
  }

  Flow run(const Statements& statements, std::string& out) {
    const Level level(*this);
    for (const auto& statement : statements)
      if (const Flow flow = run(*statement, out); flow != Flow::on) return flow;
    return Flow::on;
  }

  Flow run(const Statement& s, std::string& out) {
    line_ = s.line;
    work_.spend(1);
    switch (s.kind) {
      case Statement::Kind::data: write(s.text, out); break;
      case Statement::Kind::print: write(text_of_value(value(*s.expressions[0])), out); break;
      case Statement::Kind::loop: return loop(s, out);
      case Statement::Kind::choice: {
        size_t i = 0;
        while (i < s.expressions.size() && !truth(value(*s.expressions[i]))) ++i;
        if (i < s.bodies.size()) return run(s.bodies[i], out);
        break;
      }
      case Statement::Kind::set: assign(s, value(*s.expressions[0])); break;
      case Statement::Kind::capture:
      case Statement::Kind::filter: {
        Value text = written(s.bodies[0]);
        if (s.expressions[0]) text = filter(*s.expressions[0], &text);
        if (s.kind == Statement::Kind::capture)
          assign(s, text);
        else
          write(text_of_value(text), out);
        break;
      }
      case Statement::Kind::macro:
        scope_->names[s.text] = Value::callable({s.text, Value(), &s});
        break;
      case Statement::Kind::scope: {
        std::vector<Value> values;
        for (const ExpressionPtr& expression : s.expressions) values.push_back(value(*expression));
        BlockScope inside(*this, scope_);
        for (size_t i = 0; i < values.size(); ++i) inside.scope.names[s.names[i]] = values[i];
        return run(s.bodies[0], out);
      }
      case Statement::Kind::next: return Flow::next;
      case Statement::Kind::stop: return Flow::stop;
    }
    return Flow::on;
  }

  std::string written(const Statements& body) {
    const BlockScope inside(*this, scope_);
    std::string out;
    run(body, out);
    return out;
  }

  void assign(const Statement& s, const Value& value) {
    if (!s.text.empty()) {
      const Value space = look_up(s.names[0]);
      require(space.is(Kind::space), ErrorCode::usage, "{} of {} is set, which is no namespace",
              base::printable(s.text), base::printable(s.names[0]));
      require(!value.is(Kind::space), ErrorCode::usage, "a namespace inside a namespace");
      space.names().set(s.text, value);
    } else {
      assign(s.names, value, *scope_);
    }
  }
  void assign(const std::vector<std::string>& names, const Value& value, Scope& to) {
    if (names.size() == 1) {
      to.names[names[0]] = value;
      return;
    }
    const std::vector<Value> parts = walked(value, work_);
    require(parts.size() == names.size(), ErrorCode::usage, "{} names are taken from {} values",
            names.size(), parts.size());
    for (size_t i = 0; i < names.size(); ++i) to.names[names[i]] = parts[i];
  }

  Flow loop(const Statement& s, std::string& out) {
    std::vector<Value> items = walked(value(*s.expressions[0]), work_);
    if (s.expressions[1]) {
      std::vector<Value> matches;
      for (Value& item : items) {
        BlockScope inside(*this, scope_);
        assign(s.names, item, inside.scope);
        if (truth(value(*s.expressions[1]))) matches.push_back(std::move(item));
      }
      items = std::move(matches);
    }
    if (items.empty()) {
      const BlockScope inside(*this, scope_);
      return run(s.bodies[1], out);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      BlockScope inside(*this, scope_);
      inside.scope.names["loop"] = loop_state(items, i);
      assign(s.names, items[i], inside.scope);
      if (run(s.bodies[0], out) == Flow::stop) break;
    }
    return Flow::on;
  }
  Value loop_state(const std::vector<Value>& items, size_t i) {
    work_.spend(20);
    const size_t count = items.size();
    ValueDict names;
    names.set("index", i + 1);
    names.set("index0", i);
    names.set("revindex", count - i);
    names.set("revindex0", count - i - 1);
    names.set("first", i == 0);
    names.set("last", i + 1 == count);
    names.set("length", count);
    names.set("depth", 1);  // recursive loops are unsupported
    names.set("depth0", 0);
    names.set("cycle", Value::callable({"cycle", Value(i), nullptr}));
    names.set("previtem", i > 0 ? items[i - 1] : Value::undefined("there is no previous item"));
    names.set("nextitem", i + 1 < count ? items[i + 1] : Value::undefined("there is no next item"));
    return Value::space(std::move(names));
  }

  Value look_up(const std::string& name) {
    size_t count = 0;
    for (const Scope* scope = scope_; scope; scope = scope->around) {
      if (const auto it = scope->names.find(name); it != scope->names.end()) return it->second;
      if (++count % 8 == 0) work_.spend(1);
    }
    for (const char* function : {"range", "dict", "namespace", "raise_exception", "strftime_now"})
      if (name == function) return Value::callable({name, Value(), nullptr});
    for (const char* function : {"lipsum", "cycler", "joiner"})
      if (name == function)
        fail(ErrorCode::model, "the function '{}' is not supported in chat templates; use `raw`",
             name);
    return Value::undefined(base::printable(name) + " is undefined");
  }

  Value value(const Expression& e) {
    const Level level(*this);
    work_.spend(1);
    switch (e.op) {
      case Op::literal: return e.value;
      case Op::name: return look_up(e.text);
      case Op::attribute: return attribute(value(*e.parts[0]), e.text);
      case Op::element: {
        const Value of = value(*e.parts[0]);
        return element(of, value(*e.parts[1]), work_);
      }
      case Op::slice: return sliced(e);
      case Op::list:
      case Op::tuple: {
        ValueList list{{}, e.op == Op::tuple};
        for (const ExpressionPtr& part : e.parts) list.items.push_back(value(*part));
        return list;
      }
      case Op::dict: return dict(e);
      case Op::call: return call(e);
      case Op::filter: return filter(e, nullptr);
      case Op::test: {
        const Value of = value(*e.parts[0]);
        return tested(e.text, of, arguments(e), work_);
      }
      default: return composed(e);
    }
  }
  Value composed(const Expression& e) {
    switch (e.op) {
      case Op::choice:
        if (truth(value(*e.parts[0]))) return value(*e.parts[1]);
        return e.parts.size() > 2 ? value(*e.parts[2])
                                  : Value::undefined("an 'if' without 'else' gave nothing");
      case Op::both:
      case Op::either: {
        Value left = value(*e.parts[0]);
        return truth(left) == (e.op == Op::either) ? left : value(*e.parts[1]);
      }
      case Op::negation: return !truth(value(*e.parts[0]));
      case Op::minus: return arithmetic("-", Value(0), number(e), work_);
      case Op::plus: return number(e);
      case Op::arithmetic: {
        const Value left = value(*e.parts[0]);
        return arithmetic(e.text, left, value(*e.parts[1]), work_);
      }
      case Op::concat: {
        std::string text;
        for (const ExpressionPtr& part : e.parts) text += text_of_value(value(*part));
        work_.text(text.size());
        return text;
      }
      default: return chained(e);
    }
  }
  Value number(const Expression& e) {
    Value of = value(*e.parts[0]);
    require(of.is_number(), ErrorCode::usage, "a sign before a value of kind {}", kind_name(of));
    return of;
  }
  // a < b < c: compares neighbours up to the first false result.
  Value chained(const Expression& e) {
    Value left = value(*e.parts[0]);
    for (size_t i = 0; i < e.keys.size(); ++i) {
      Value right = value(*e.parts[i + 1]);
      const bool inverted = e.keys[i] == "not in";
      const Arguments other{{right}, {}};
      if (tested(inverted ? "in" : e.keys[i], left, other, work_) == inverted) return false;
      left = std::move(right);
    }
    return true;
  }
  Value sliced(const Expression& e) {
    const Value of = value(*e.parts[0]);
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i) bounds[i] = e.parts[i + 1] ? value(*e.parts[i + 1]) : nullptr;
    return slice(of, &bounds[0], &bounds[1], &bounds[2], work_);
  }
  Value dict(const Expression& e) {
    ValueDict dict;
    for (size_t i = 0; i + 1 < e.parts.size(); i += 2) {
      const Value key = value(*e.parts[i]);
      require(key.is(Kind::text), ErrorCode::model,
              "a key of kind {} in a dict is not supported in chat templates", kind_name(key));
      dict.set(key.text(), value(*e.parts[i + 1]));
    }
    return dict;
  }
  Value filter(const Expression& e, const Value* body) {
    const Level level(*this);
    const Expression* of = e.parts[0].get();
    const Value base = !of ? *body : of->op == Op::filter ? filter(*of, body) : value(*of);
    return filtered(e.text, base, arguments(e), work_);
  }
  Arguments arguments(const Expression& e) {
    Arguments result;
    for (size_t i = 1; i < e.parts.size(); ++i) {
      if (e.keys[i - 1].empty())
        result.places.push_back(value(*e.parts[i]));
      else
        result.names.emplace_back(e.keys[i - 1], value(*e.parts[i]));
    }
    return result;
  }

  Value call(const Expression& e) {
    const Value callee = value(*e.parts[0]);
    require(!callee.is(Kind::undefined), ErrorCode::usage, "{}", callee.why());
    require(callee.is(Kind::callable), ErrorCode::usage, "a value of kind {} is called",
            kind_name(callee));
    const Value::Callable& of = callee.callable();
    const Arguments values = arguments(e);
    if (of.macro) return call_macro(*of.macro, values);
    if (!of.self.is(Kind::undefined)) return call_method(of, values, work_);
    return call_function(of.name, values);
  }
  Value call_macro(const Statement& macro, const Arguments& values) {
    const size_t count = macro.names.size(), first = count - macro.expressions.size();
    require(values.places.size() <= count, ErrorCode::usage, "the macro {} takes {} arguments",
            base::printable(macro.text), count);
    work_.spend(count * (8 + values.names.size()));
    const int line = line_;
    BlockScope inside(*this, &root_);
    auto& names = inside.scope.names;
    for (size_t i = 0; i < values.places.size(); ++i) names[macro.names[i]] = values.places[i];
    for (const auto& [name, value] : values.names) {
      require(std::find(macro.names.begin(), macro.names.end(), name) != macro.names.end(),
              ErrorCode::usage, "the macro {} has no parameter {}", base::printable(macro.text),
              base::printable(name));
      names[name] = value;
    }
    for (size_t i = 0; i < count; ++i)
      if (!names.count(macro.names[i]))
        names[macro.names[i]] = i >= first
                                    ? value(*macro.expressions[i - first])
                                    : Value::undefined("'" + macro.names[i] + "' is undefined");
    std::string out;
    run(macro.bodies[0], out);
    line_ = line;
    return out;
  }
  Value call_function(const std::string& name, const Arguments& values) {
    if (name == "raise_exception")
      fail(ErrorCode::usage, "the chat template refuses: {}",
           values.places.empty() ? "" : base::printable(text_of_value(values.places[0])).str());
    if (name == "strftime_now")
      return time_text(text_of(values.bind(name, {"format"}, 1)[0], name));
    if (name == "range") return range(values);
    ValueDict names;
    for (const Value& from : values.places) {
      require(from.is(Kind::dict), ErrorCode::usage, "'{}' of a value of kind {}", name,
              kind_name(from));
      work_.spend(from.dict().size());
      for (const auto& [key, value] : from.dict().items()) names.set(key, value);
    }
    for (const auto& [key, value] : values.names) {
      require(!value.is(Kind::space), ErrorCode::usage, "a namespace inside a namespace");
      names.set(key, value);
    }
    work_.spend(names.size());
    return name == "dict" ? Value(std::move(names)) : Value::space(std::move(names));
  }
  Value range(const Arguments& values) {
    require(values.names.empty() && !values.places.empty() && values.places.size() <= 3,
            ErrorCode::usage, "'range' needs one to three numbers");
    const auto at = [&](size_t i) { return whole_of(&values.places[i], "range", 0); };
    const bool one = values.places.size() == 1;
    const int64_t from = one ? 0 : at(0), to = one ? at(0) : at(1);
    const int64_t step = values.places.size() == 3 ? at(2) : 1;
    require(step != 0, ErrorCode::usage, "'range' with steps of 0");
    std::vector<Value> items;
    for (__int128 i = from; step > 0 ? i < to : i > to; i += step) {
      require(items.size() < kLongestRange, ErrorCode::usage, "a range of more than {} numbers",
              kLongestRange);
      items.emplace_back(static_cast<int64_t>(i));
    }
    work_.spend(items.size());
    return Value::list(std::move(items));
  }
  Value time_text(const std::string& format) const {
    require(format.size() <= 1000 && format.find('\0') == std::string::npos, ErrorCode::usage,
            "'strftime_now' with a format of {} bytes", format.size());
    std::tm parts{};
    localtime_r(&now_, &parts);
    std::string text(format.size() * 32 + 1, '\0');
    text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
    return text;
  }

  const std::time_t now_;
  Work work_;
  int& line_;
  int depth_ = 0;
  Scope root_;
  Scope* scope_;
};

}  // namespace

std::string rendered(const Statements& statements, const ValueDict& values, std::time_t now,
                     Work work, int& line) {
  return Renderer(values, now, work, line).all(statements);
}

}  // namespace tessera::jinja
