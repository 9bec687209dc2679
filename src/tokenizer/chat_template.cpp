#include "tokenizer/chat_template.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "tokenizer/template_expression.h"

namespace tessera::tokenizer {

using base::Json;

struct ChatTemplate::Node {
  enum class Kind { block, text, print, loop, choice, set } kind = Kind::block;
  std::string text;                          // text; names of a loop or of set
  std::string second;                        // the second name of a loop; the attribute of set
  std::vector<Expression> expressions;       // print, loop, set: one; choice: one a branch
  std::vector<std::unique_ptr<Node>> parts;  // block; loop: body; choice: branches, else last
};

namespace {

using Node = ChatTemplate::Node;
using NodePtr = std::unique_ptr<Node>;

NodePtr node(Node::Kind kind) {
  auto made = std::make_unique<Node>();
  made->kind = kind;
  return made;
}

// A piece of the source: text, {{ }} or {% %}.
struct Piece {
  char kind;  // 't', '{', '%'
  std::string text;
  int line;
};

void trim_left(std::string& text) { text.erase(0, text.find_first_not_of(" \t\r\n")); }
void trim_right(std::string& text) { text.erase(text.find_last_not_of(" \t\r\n") + 1); }

// The end of a tag, past strings that may hold its closing characters.
size_t closing(const std::string& text, size_t at, const std::string& mark) {
  char quote = 0;
  for (; at + 1 < text.size(); ++at) {
    const char c = text[at];
    if (quote) {
      if (c == '\\')
        ++at;
      else if (c == quote)
        quote = 0;
    } else if ((c == '"' || c == '\'') && mark != "#}") {
      quote = c;
    } else if (text.compare(at, 2, mark) == 0) {
      return at;
    }
  }
  return std::string::npos;
}

// transformers renders with trim_blocks and lstrip_blocks.
std::vector<Piece> cut(const std::string& text, const std::string& where) {
  std::vector<Piece> pieces;
  size_t at = 0;
  int line = 1;
  bool trim_next = false, newline_next = false;
  while (at < text.size()) {
    size_t open = at;
    while (open < text.size() &&
           !(text[open] == '{' && open + 1 < text.size() &&
             (text[open + 1] == '{' || text[open + 1] == '%' || text[open + 1] == '#')))
      ++open;
    std::string plain = text.substr(at, open - at);
    const int lines = static_cast<int>(std::count(plain.begin(), plain.end(), '\n'));
    if (newline_next && plain.starts_with('\n')) plain.erase(0, 1);
    if (trim_next) trim_left(plain);
    const char kind = open < text.size() ? text[open + 1] : 't';
    const bool dash = open + 2 < text.size() && text[open + 2] == '-';
    if (dash) {
      trim_right(plain);
    } else if (kind == '%' || kind == '#') {
      const size_t last = plain.find_last_not_of(" \t");
      if (last == std::string::npos ? at == 0 || text[at - 1] == '\n' : plain[last] == '\n')
        plain.erase(last == std::string::npos ? 0 : last + 1);
    }
    if (!plain.empty()) pieces.push_back({'t', plain, line});
    line += lines;
    if (open >= text.size()) break;
    const std::string mark = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    const size_t close = closing(text, open + 2, mark);
    require(close != std::string::npos, ErrorCode::model, "{}: line {}: '{}' is missing", where,
            line, mark);
    const size_t from = open + (dash ? 3 : 2);
    std::string inside = from <= close ? text.substr(from, close - from) : "";
    line += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
    trim_next = !inside.empty() && inside.back() == '-';
    if (trim_next) inside.pop_back();
    newline_next = kind != '{';
    if (kind != '#') pieces.push_back({kind, inside, line});
    at = close + 2;
  }
  return pieces;
}

class Parser {
 public:
  Parser(std::vector<Piece> pieces, const std::string& where)
      : pieces_(std::move(pieces)), where_(where) {}

  NodePtr all() {
    NodePtr root = block({});
    if (at_ < pieces_.size()) refuse("'" + word_ + "' without its beginning");
    return root;
  }

 private:
  // Parts up to one of the closing words, which stays in word_ and rest_.
  NodePtr block(const std::vector<std::string>& until) {
    require(++depth_ < 64, ErrorCode::model, "{}: blocks stand more than 64 deep", where_);
    NodePtr made = node(Node::Kind::block);
    for (; at_ < pieces_.size(); ++at_) {
      const Piece& piece = pieces_[at_];
      line_ = piece.line;
      if (piece.kind == 't') {
        made->parts.push_back(node(Node::Kind::text));
        made->parts.back()->text = piece.text;
      } else if (piece.kind == '{') {
        made->parts.push_back(node(Node::Kind::print));
        made->parts.back()->expressions.push_back(expression(piece.text));
      } else {
        split(piece.text);
        if (std::find(until.begin(), until.end(), word_) != until.end()) break;
        if (word_.starts_with("end") || word_ == "else" || word_ == "elif") break;
        made->parts.push_back(statement());
      }
    }
    --depth_;
    return made;
  }

  NodePtr statement() {
    if (word_ == "for") return loop();
    if (word_ == "if") return choice();
    if (word_ == "set") return set();
    if (word_ == "generation") {  // marks what a trainer learns from
      ++at_;
      return closed(block({"endgeneration"}), "endgeneration");
    }
    refuse("the statement '" + word_ + "'");
  }

  NodePtr loop() {
    NodePtr made = node(Node::Kind::loop);
    const size_t in = rest_.find(" in ");
    if (in == std::string::npos) refuse("a for without 'in'");
    std::string names = rest_.substr(0, in);
    const size_t comma = names.find(',');
    made->text = name(names.substr(0, comma));
    if (comma != std::string::npos) made->second = name(names.substr(comma + 1));
    made->expressions.push_back(expression(rest_.substr(in + 4)));
    ++at_;
    made->parts.push_back(closed(block({"endfor"}), "endfor"));
    return made;
  }

  NodePtr choice() {
    NodePtr made = node(Node::Kind::choice);
    made->expressions.push_back(expression(rest_));
    for (;;) {
      ++at_;
      made->parts.push_back(block({"elif", "else", "endif"}));
      if (at_ >= pieces_.size()) refuse("an if without 'endif'");
      if (word_ == "endif") return made;
      if (word_ == "elif") {
        made->expressions.push_back(expression(rest_));
      } else if (word_ == "else") {
        ++at_;
        made->parts.push_back(closed(block({"endif"}), "endif"));
        return made;
      } else {
        refuse("'" + word_ + "' inside an if");
      }
    }
  }

  NodePtr set() {
    NodePtr made = node(Node::Kind::set);
    const size_t equals = rest_.find('=');
    if (equals == std::string::npos) refuse("a set without '='");
    const std::string target = rest_.substr(0, equals);
    const size_t dot = target.find('.');
    made->text = name(target.substr(0, dot));
    if (dot != std::string::npos) made->second = name(target.substr(dot + 1));
    made->expressions.push_back(expression(rest_.substr(equals + 1)));
    return made;
  }

  NodePtr closed(NodePtr body, const std::string& by) {
    if (at_ >= pieces_.size() || word_ != by) refuse("a block without '" + by + "'");
    return body;
  }
  std::string name(std::string text) const {
    trim_left(text);
    trim_right(text);
    const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_';
    });
    if (!plain) refuse("the name '" + text + "'");
    return text;
  }
  void split(std::string text) {
    trim_left(text);
    trim_right(text);
    const size_t space = text.find_first_of(" \t\r\n");
    word_ = text.substr(0, space);
    rest_ = space == std::string::npos ? "" : text.substr(space + 1);
  }
  Expression expression(const std::string& text) const {
    return Expression(text, fmt::format("{}: line {}", where_, line_));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorCode::model, "{}: line {}: {} is not supported in chat templates; use --raw", where_,
         line_, what);
  }

  std::vector<Piece> pieces_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1, depth_ = 0;
  std::string word_, rest_;
};

constexpr size_t kLongest = size_t{64} << 20;

void run(const Node& n, Json& scope, std::string& out) {
  require(out.size() < kLongest, ErrorCode::usage, "the chat template gives more than 64 MB");
  switch (n.kind) {
    case Node::Kind::block:
      for (const auto& part : n.parts) run(*part, scope, out);
      break;
    case Node::Kind::text: out += n.text; break;
    case Node::Kind::print: out += shown(n.expressions[0].value(scope)); break;
    case Node::Kind::set: {
      const Json value = n.expressions[0].value(scope);
      if (n.second.empty())
        scope[n.text] = value;
      else
        scope[n.text][n.second] = value;
      break;
    }
    case Node::Kind::choice: {
      size_t i = 0;
      while (i < n.expressions.size() && !truth(n.expressions[i].value(scope))) ++i;
      if (i < n.parts.size()) run(*n.parts[i], scope, out);
      break;
    }
    case Node::Kind::loop: {
      Json list = n.expressions[0].value(scope);
      if (list.is_object()) {
        Json items = Json::array();
        for (const auto& [key, value] : list.items())
          items.push_back(n.second.empty() ? Json(key) : Json::array({key, value}));
        list = items;
      }
      require(list.is_array(), ErrorCode::usage, "the chat template walks over what is no list");
      const Json outer = scope;  // what a loop sets is gone behind it, but for namespaces
      for (size_t i = 0; i < list.size(); ++i) {
        if (n.second.empty()) {
          scope[n.text] = list[i];
        } else {
          require(list[i].is_array() && list[i].size() == 2, ErrorCode::usage,
                  "the chat template takes two names from what is no pair");
          scope[n.text] = list[i][0];
          scope[n.second] = list[i][1];
        }
        scope["loop"] = {{"index", i + 1},
                         {"index0", i},
                         {"first", i == 0},
                         {"last", i + 1 == list.size()},
                         {"length", list.size()}};
        if (i > 0) scope["loop"]["previtem"] = list[i - 1];
        if (i + 1 < list.size()) scope["loop"]["nextitem"] = list[i + 1];
        run(*n.parts[0], scope, out);
      }
      Json after = outer;
      for (auto& [key, value] : after.items())
        if (value.is_object() && value.contains(kNamespace)) value = scope[key];
      scope = after;
      break;
    }
  }
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& text, const std::string& where) : where_(where) {
  require(text.size() <= (size_t{1} << 20), ErrorCode::model, "{}: the chat template has {} bytes",
          where, text.size());
  root_ = Parser(cut(text, where), where_).all();
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Json& values) const {
  Json scope = values;
  std::string out;
  run(*root_, scope, out);
  return out;
}

}  // namespace tessera::tokenizer
