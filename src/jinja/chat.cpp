#include "jinja/chat.h"

#include <limits>
#include <vector>

#include "base/fail.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/python_json.h"
#include "base/stop.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::jinja {
using tokenizer::whole_characters;

namespace {

using base::Json;
using Kind = Value::Kind;

constexpr const char* kExpected = R"([{"role": "user", "content": "..."}, ...])";

// Builds values from JSON already checked for syntax and depth.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string of) : name(std::move(of)) {}
  const std::string name;
  Value root;
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    require(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), ErrorCode::model,
            "{}: the number {} is out of range", name, value);
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    open_.back().key = text;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  struct Level {
    bool object;
    std::string key;
    ValueDict dict;
    std::vector<Value> list;
  };
  bool open(bool object) {
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(level.object ? Value(std::move(level.dict)) : Value::list(std::move(level.list)));
  }
  bool add(Value value) {
    base::check_stop();
    if (open_.empty())
      root = std::move(value);
    else if (open_.back().object)
      open_.back().dict.set(open_.back().key, std::move(value));
    else
      open_.back().list.push_back(std::move(value));
    return true;
  }
  std::vector<Level> open_;
};

void check_message(const Value& message, size_t i) {
  const Value* role = message.is(Kind::dict) ? message.dict().find("role") : nullptr;
  require(role && role->is(Kind::text), ErrorCode::usage,
          "`chat`: message {} has no text as 'role'", i);
  const Value* content = message.dict().find("content");
  require(content || message.dict().find("tool_calls"), ErrorCode::usage,
          "`chat`: message {} has no 'content'", i);
  require(!content || content->is(Kind::text) || content->is(Kind::list) || content->is(Kind::none),
          ErrorCode::usage,
          "`chat`: the 'content' of message {} is neither text nor a list nor null", i);
  if (!content || !content->is(Kind::list)) return;
  for (const Value& part : content->items()) {
    const Value* type = part.is(Kind::dict) ? part.dict().find("type") : nullptr;
    require(!type || !type->is(Kind::text) || type->text() == "text", ErrorCode::usage,
            "`chat`: message {} holds a part of type {}; language models read text alone", i,
            base::printable(type->text()));
  }
}

}  // namespace

Value value_of_json(std::string_view text, const std::string& name) {
  base::parse_json(text, name);
  std::string plain;  // must outlive `text`
  if (base::has_python_numbers(text)) text = plain = base::without_python_numbers(text);
  Builder builder(name);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.root;
}

ValueDict chat_values(std::string_view json) {
  require(whole_characters(json) == json.size(), ErrorCode::usage,
          "a chat: what was said is not UTF-8");
  Value root;
  try {
    root = value_of_json(json, "chat");
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
    fail(ErrorCode::usage, "{}; expected {}", e.what(), kExpected);
  }
  ValueDict values;
  if (root.is(Kind::dict))
    values = root.dict();
  else
    values.set("messages", root);
  const Value* messages = values.find("messages");
  require(messages && messages->is(Kind::list) && !messages->items().empty(), ErrorCode::usage,
          "`chat`: expected {}", kExpected);
  for (size_t i = 0; i < messages->items().size(); ++i) check_message(messages->items()[i], i);
  return values;
}

}  // namespace tessera::jinja
