#include "jinja/statement.h"

#include <algorithm>
#include <initializer_list>

#include "base/printable.h"
#include "jinja/expression.h"

namespace tessera::jinja {
namespace {

using Kind = TemplateToken::Kind;
using StatementPtr = std::unique_ptr<Statement>;

constexpr int kDeepest = 64;

class StatementReader {
 public:
  explicit StatementReader(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  Statements all() {
    Statements statements = block({});
    if (!tokens_.is(Kind::end))
      tokens_.refuse(base::printable(tokens_.now().text) + " without its beginning");
    return statements;
  }

 private:
  // Parses statements up to one of the words, or without words to the end of the template; does not
  // consume the word.
  Statements block(std::initializer_list<const char*> until) {
    if (++depth_ > kDeepest) tokens_.refuse("a block that stands 64 deep in others");
    Statements statements;
    while (!tokens_.is(Kind::end)) {
      const TemplateToken token = tokens_.take();
      if (token.kind == Kind::statement) {
        const std::string& word = tokens_.now().text;
        if (std::find(until.begin(), until.end(), word) != until.end()) break;
        if (until.size() == 0 && (word.starts_with("end") || word == "else" || word == "elif"))
          break;
        statements.push_back(statement());
        if (!tokens_.is(Kind::statement_end)) tokens_.refuse_token();
      } else if (token.kind == Kind::print) {
        statements.push_back(make(Statement::Kind::print));
        statements.back()->expressions.push_back(expressions_.tuple());
        if (!tokens_.is(Kind::print_end)) tokens_.refuse_token();
      } else {
        statements.push_back(make(Statement::Kind::data));
        statements.back()->text = token.text;
        continue;
      }
      tokens_.take();
    }
    if (until.size() > 0 && tokens_.is(Kind::end))
      tokens_.refuse(std::string("a block without '") + *(until.end() - 1) + "'");
    --depth_;
    return statements;
  }
  // Parses the body between the end of this tag and the word.
  Statements body(std::initializer_list<const char*> until) {
    if (!tokens_.is(Kind::statement_end)) tokens_.refuse_token();
    tokens_.take();
    return block(until);
  }
  Statements scoped(const char* until) {
    ++scopes_;
    Statements statements = body({until});
    tokens_.take();
    --scopes_;
    return statements;
  }

  StatementPtr make(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = tokens_.now().line;
    return statement;
  }

  StatementPtr statement() {
    if (tokens_.take_name("for")) return loop();
    if (tokens_.take_name("if")) return choice();
    if (tokens_.take_name("set")) return set();
    if (tokens_.take_name("macro")) return macro();
    if (tokens_.take_name("with")) return with();
    if (tokens_.take_name("filter")) {
      StatementPtr filter = make(Statement::Kind::filter);
      filter->expressions.push_back(expressions_.filters());
      filter->bodies.push_back(scoped("endfilter"));
      return filter;
    }
    if (tokens_.take_name("generation")) {  // marks text for training
      StatementPtr generation = make(Statement::Kind::scope);
      generation->bodies.push_back(scoped("endgeneration"));
      return generation;
    }
    for (const bool stops : {true, false})
      if (tokens_.take_name(stops ? "break" : "continue")) {
        if (loops_ == 0) tokens_.refuse("'break' or 'continue' outside a loop");
        return make(stops ? Statement::Kind::stop : Statement::Kind::next);
      }
    tokens_.refuse("the statement " + base::printable(tokens_.now().text));
  }

  void names(Statement& to) {
    const bool bracket = tokens_.take_sign("(");
    do to.names.push_back(tokens_.name());
    while (tokens_.take_sign(","));
    if (bracket) tokens_.expect_sign(")");
  }

  StatementPtr loop() {
    StatementPtr result = make(Statement::Kind::loop);
    names(*result);
    tokens_.expect_name("in");
    result->expressions.push_back(expressions_.tuple(false));
    result->expressions.push_back(tokens_.take_name("if") ? expressions_.expression() : nullptr);
    if (tokens_.is_name("recursive")) tokens_.refuse("a recursive loop");
    ++scopes_, ++loops_;
    result->bodies.push_back(body({"else", "endfor"}));
    --scopes_, --loops_;
    result->bodies.emplace_back();
    if (tokens_.take_name("else")) {
      ++scopes_;
      result->bodies.back() = body({"endfor"});
      --scopes_;
    }
    tokens_.expect_name("endfor");
    return result;
  }

  StatementPtr choice() {
    StatementPtr result = make(Statement::Kind::choice);
    result->expressions.push_back(expressions_.tuple(false));
    for (;;) {
      result->bodies.push_back(body({"elif", "else", "endif"}));
      if (tokens_.take_name("endif")) return result;
      if (tokens_.take_name("elif")) {
        result->expressions.push_back(expressions_.tuple(false));
      } else {
        tokens_.expect_name("else");
        result->bodies.push_back(body({"endif"}));
        tokens_.expect_name("endif");
        return result;
      }
    }
  }

  StatementPtr set() {
    StatementPtr result = make(Statement::Kind::set);
    names(*result);
    if (result->names.size() == 1 && tokens_.take_sign(".")) {
      if (!tokens_.is(Kind::name)) tokens_.refuse_token();
      result->text = tokens_.take().text;
    }
    if (tokens_.take_sign("=")) {
      result->expressions.push_back(expressions_.tuple());
      return result;
    }
    if (result->names.size() > 1) tokens_.refuse("a set of several names without '='");
    result->kind = Statement::Kind::capture;
    result->expressions.push_back(tokens_.take_sign("|") ? expressions_.filters() : nullptr);
    result->bodies.push_back(scoped("endset"));
    return result;
  }

  StatementPtr macro() {
    if (scopes_ > 0) tokens_.refuse("a macro inside a loop or another block");
    StatementPtr result = make(Statement::Kind::macro);
    result->text = tokens_.name();
    tokens_.expect_sign("(");
    while (!tokens_.take_sign(")")) {
      result->names.push_back(tokens_.name());
      if (tokens_.take_sign("="))
        result->expressions.push_back(expressions_.expression());
      else if (!result->expressions.empty())
        tokens_.refuse("a parameter without value behind those with one");
      if (!tokens_.is_sign(")")) tokens_.expect_sign(",");
    }
    const int loops = std::exchange(loops_, 0);
    result->bodies.push_back(scoped("endmacro"));
    loops_ = loops;
    return result;
  }

  StatementPtr with() {
    StatementPtr result = make(Statement::Kind::scope);
    while (!tokens_.is(Kind::statement_end)) {
      result->names.push_back(tokens_.name());
      tokens_.expect_sign("=");
      result->expressions.push_back(expressions_.expression());
      if (!tokens_.take_sign(",")) break;
    }
    result->bodies.push_back(scoped("endwith"));
    return result;
  }

  TokenStream& tokens_;
  ExpressionReader expressions_;
  int depth_ = 0, scopes_ = 0, loops_ = 0;
};

}  // namespace

Statements template_statements(const std::string& source, const std::string& where) {
  TokenStream tokens(template_tokens(source, where), where);
  return StatementReader(tokens).all();
}

}  // namespace tessera::jinja
