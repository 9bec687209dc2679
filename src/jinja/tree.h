#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jinja/value.h"

namespace tessera::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// An expression of a chat template.
struct Expression {
  enum class Op {
    literal,    ///< value
    name,       ///< text
    attribute,  ///< parts[0].text
    element,    ///< parts[0][parts[1]]
    slice,      ///< parts[0][parts[1]:parts[2]:parts[3]], ends may be null
    list,
    tuple,
    dict,    ///< key, value, key, value, ...
    call,    ///< parts[0](parts[1], ...)
    filter,  ///< parts[0]|text(parts[1], ...); parts[0] null: output of a block
    test,    ///< parts[0] is text(parts[1], ...)
    choice,  ///< parts[1] if parts[0] else parts[2], optional
    both,
    either,
    negation,
    minus,
    plus,
    arithmetic,  ///< text: + - * / // % **
    concat,      ///< parts[0] ~ parts[1] ~ ...
    compare      ///< parts[0] keys[0] parts[1] keys[1] parts[2] ...
  };
  Op op = Op::literal;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> keys;  ///< argument names of parts[1..], "" for positional arguments
  int depth = 1;
};

struct Statement;
using Statements = std::vector<std::unique_ptr<Statement>>;

/// A statement of a chat template.
struct Statement {
  enum class Kind {
    data,     ///< text
    print,    ///< expressions[0]
    loop,     ///< names; expressions: iterable, condition (may be null); body, otherwise
    choice,   ///< expressions; a body for each, and a last body for else
    set,      ///< names, or names[0].text; expressions[0]
    capture,  ///< set with a body; names, text alike; expressions[0]: filters (may be null)
    macro,    ///< text: name; names: parameters; expressions: defaults of the last parameters
    filter,   ///< expressions[0] applied to the body's output
    scope,    ///< names and expressions, valid in the body
    next,     ///< continue
    stop      ///< break
  };
  Kind kind = Kind::data;
  std::string text;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> expressions;
  std::vector<Statements> bodies;
  int line = 0;
};

}  // namespace tessera::jinja
