#include "server/chat_reader.h"

#include "server/fields.h"
#include "server/json_reader.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr size_t kMostTools = 128, kMostMessages = 1024, kMostCalls = 128;
constexpr int kDeepest = 24;  // the enclosing body and the order for other ranks add more levels

std::string at(const std::string& list, size_t i) { return list + "[" + std::to_string(i) + "]"; }

// Removes null fields, because templates test which fields exist.
Json given_of(const Json& object) {
  Json result = Json::object();
  for (const auto& [name, value] : object.items())
    if (!value.is_null()) result[name] = value;
  return result;
}

// Checks parts that templates get unchanged.
void check_parts(const Json& value, const std::string& where, int depth = 1) {
  if (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos)
    throw wrong(where, where + ": expected texts without the character 0");
  if (depth > kDeepest)
    throw wrong(where, where + ": nested deeper than " + std::to_string(kDeepest));
  if (!value.is_structured()) return;
  for (const auto& [name, part] : value.items()) {
    if (name.find('\0') != std::string::npos)
      throw wrong(where, where + ": expected names without the character 0");
    check_parts(part, where, depth + 1);
  }
}

// Arguments as an object, or as JSON text of an object; empty text and null mean no arguments.
Json read_arguments(const Json* arguments, const std::string& where, size_t most) {
  if (!arguments || (arguments->is_string() && arguments->get_ref<const std::string&>().empty()))
    return Json::object();
  Json read = *arguments;
  if (arguments->is_string()) {
    const auto& text = arguments->get_ref<const std::string&>();
    check_text(text.size(), most, where);
    read = parse_object(text, where, where);
  }
  if (!read.is_object()) throw wrong(where, where + ": expected an object, or the text of one");
  check_parts(read, where);
  return read;
}

// Reads {"function": {"name": ..., ...}}; `more` reads the other fields of the function.
template <class More>
void read_function(const Json& object, const std::string& where, const More& more) {
  Fields outer(object, where, true);
  std::string type = "function", id, name;
  outer.text("id", id);
  outer.text("type", type);
  const Json* function = outer.take("function");
  outer.finish();
  if (type != "function") throw wrong(where + ".type", where + ".type: expected function");
  const std::string inside = where + ".function";
  if (!function) throw wrong(inside, inside + ": expected an object with a name");
  Fields fields(*function, inside, true);
  if (!fields.text("name", name) || name.empty())
    throw wrong(inside + ".name", inside + ".name: expected the name of a function");
  more(fields, inside);
  fields.finish();
}

Json read_call(const Json& object, const std::string& where, size_t most) {
  Json arguments;
  read_function(object, where, [&](Fields& fields, const std::string& inside) {
    arguments = read_arguments(fields.take("arguments"), inside + ".arguments", most);
  });
  Json call = given_of(object);
  call["function"] = given_of(object["function"]);
  call["function"]["arguments"] = std::move(arguments);
  return call;
}

Json read_calls(const Json& calls, const std::string& where, size_t most) {
  if (!calls.is_array() || calls.size() > kMostCalls)
    throw wrong(where, where + ": expected a list of at most " + std::to_string(kMostCalls) +
                           " {function: {name, arguments}}");
  Json read = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) read.push_back(read_call(calls[i], at(where, i), most));
  return read;
}

Json read_message(const Json& object, const std::string& where, size_t most) {
  Fields fields(object, where, true);
  std::string role, content, name, id;
  fields.text("role", role);
  const bool assistant = role == "assistant", has_content = fields.text("content", content);
  const Json* calls = fields.take_list("tool_calls");
  if (calls && !assistant)
    throw wrong(where + ".tool_calls", where + ".tool_calls: only an assistant has called");
  if (role == "tool") {
    fields.text("tool_call_id", id);
    fields.text("name", name);
  }
  if (role.empty() || (!has_content && !assistant))
    throw wrong(where, where + ": expected a role and a content, both texts");
  if (role != "system" && role != "user" && !assistant && role != "tool")
    throw wrong(where + ".role", where + ".role: expected system, user, assistant or tool");
  fields.finish();
  Json message = given_of(object);
  if (!calls) message.erase("tool_calls");
  if (!has_content)
    message["content"] = calls ? Json() : Json("");  // a template may print null as a word
  if (calls) message["tool_calls"] = read_calls(*calls, where + ".tool_calls", most);
  return message;
}

// Bytes of the contents and calls of a message.
size_t bytes_of(const Json& message) {
  size_t bytes = 0;
  for (const auto& [name, value] : message.items())
    if (name != "role")
      bytes += value.is_string() ? value.get_ref<const std::string&>().size()
                                 : (value.is_null() ? 0 : text_of(value).size());
  return bytes;
}

}  // namespace

Json read_tools(const Json& tools) {
  if (!tools.is_array() || tools.empty() || tools.size() > kMostTools)
    throw wrong("tools", "tools: expected a list of 1 to " + std::to_string(kMostTools) +
                             " {type, function: {name, description, parameters}}");
  Json read = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    read_function(tools[i], at("tools", i), [](Fields& fields, const std::string& inside) {
      std::string description;
      bool strict = false;
      fields.text("description", description);
      fields.flag("strict", strict);
      const Json* parameters = fields.take("parameters");
      if (parameters && !parameters->is_object())
        throw wrong(inside + ".parameters", inside + ".parameters: expected an object, a schema");
    });
    read.push_back(given_of(tools[i]));
    read.back()["function"] = given_of(tools[i]["function"]);
  }
  check_parts(read, "tools");
  return read;
}

std::string read_chat(const Json& messages, const Json* tools, size_t most, const bool* thinks) {
  if (!messages.is_array() || messages.empty() || messages.size() > kMostMessages)
    throw wrong("messages", "messages: expected a list of 1 to " + std::to_string(kMostMessages) +
                                " {role, content}");
  Json read = Json::array();
  size_t bytes = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    read.push_back(read_message(messages[i], at("messages", i), most));
    bytes += bytes_of(read.back());
    check_text(bytes, most, "messages");
  }
  if (!tools && !thinks) return text_of(read);
  Json chat = {{"messages", std::move(read)}};
  if (thinks) chat["enable_thinking"] = *thinks;
  if (!tools) return text_of(chat);
  chat["tools"] = read_tools(*tools);
  check_text(bytes + text_of(chat["tools"]).size(), most, "tools");
  return text_of(chat);
}

}  // namespace tessera::server
