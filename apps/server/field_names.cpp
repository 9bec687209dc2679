#include "server/field_names.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "server/option_names.h"
#include "tessera/request_fields.h"

namespace tessera::server {
namespace {

// Fields of the library that have another name in a body.
const FieldNames kRenamed{{"chat", "messages"}};

// Beginnings of messages about a field that is not a field of the library.
const FieldNames kBeginnings{{"'image", "image"},
                             {"'mask", "mask"},
                             {"`chat`: 'tools'", "tools"},
                             {"`chat`: 'enable_thinking'", "enable_thinking"}};

// Fields of a body: those of the requests' tables, and those with forms of their own.
const std::set<std::string>& known_fields() {
  static const std::set<std::string> fields = [] {
    std::set<std::string> names{"classes", "enable_thinking", "image",          "loras",
                                "mask",    "messages",        "outpaint",       "prompt",
                                "stop",    "tools",           "negative_prompt"};
    const auto add = [&](const Field& field, const auto&) {
      if (field.served) names.insert(field.name);
    };
    const GenerateRequest images;
    const CompleteRequest texts;
    visit_fields(images, add);
    visit_fields(texts, add);
    return names;
  }();
  return fields;
}

bool of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::string word_at(const std::string& text, size_t at) {
  const auto end = std::find_if_not(text.begin() + ptrdiff_t(at), text.end(), of_word);
  return {text.begin() + ptrdiff_t(at), end};
}

std::string renamed(const std::string& field, const FieldNames& form) {
  const auto other = form.find(field);
  return other == form.end() ? field : other->second;
}

// The name in a body; "": a body has no such field.
std::string in_body(const std::string& field, const FieldNames& form) {
  const std::string name = renamed(field, kRenamed);
  return known_fields().contains(name) ? renamed(name, form) : "";
}

// Where the folders of a path that begins at `at` end, behind the last slash; `at`: none begins.
// One in quotes begins behind them.
size_t behind_folders(const std::string& text, size_t at, bool quoted) {
  const char before = at > 0 ? text[at - 1] : ' ';
  if (text[at] != '/' || (quoted ? before != '\'' : before != ' ' && before != '(')) return at;
  const size_t end = std::min(text.find(quoted ? '\'' : ' ', at), text.size());
  return text.rfind('/', end - 1) + 1 == at + 1 ? at : text.rfind('/', end - 1) + 1;
}

// The sentence with the last part of each path alone: folders are the server's own.
std::string without_folders(const std::string& sentence, bool quoted_paths) {
  std::string result;
  bool quoted = false;
  for (size_t i = 0; i < sentence.size(); ++i) {
    if (sentence[i] == '\'') {  // inside a word the quote is an apostrophe
      const size_t beside = quoted ? i + 1 : i - 1;
      const bool bound = beside >= sentence.size() || !of_word(sentence[beside]);
      quoted = quoted != bound;
    }
    if (!quoted || quoted_paths) i = behind_folders(sentence, i, quoted);
    if (i < sentence.size()) result += sentence[i];
  }
  return result;
}

}  // namespace

std::string in_fields(const std::string& sentence, const FieldNames& form, bool quoted_paths) {
  return spell_fields(without_folders(sentence, quoted_paths), [&](const std::string& field) {
    const std::string name = in_body(field, form);
    return name.empty() ? "the server's " + option_of(field) : name;
  });
}

std::string field_blamed(const std::string& sentence, const FieldNames& form) {
  for (const auto& [beginning, field] : kBeginnings)
    if (sentence.starts_with(beginning)) return renamed(field, form);
  if (const std::string field = field_of(sentence); !field.empty()) return in_body(field, form);
  const std::string word = word_at(sentence, 0);
  return known_fields().contains(word) ? renamed(word, form) : "";
}

Refusal refusal_of(const Error& error, const FieldNames& form) {
  const bool of_client = error.code() == ErrorCode::usage || error.code() == ErrorCode::plan;
  const std::string message = in_fields(error.what(), form, !of_client);
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::plan:
      return {400, "invalid_request_error", message, field_blamed(error.what(), form)};
    case ErrorCode::memory: return {503, "memory", message};
    case ErrorCode::cancelled: return {409, "cancelled", message};
    default: return {500, error.code() == ErrorCode::model ? "model" : "server_error", message};
  }
}

Refusal in_form(const Refusal& refusal, const FieldNames& form) {
  const auto other = form.find(refusal.param());
  if (other == form.end()) return refusal;
  std::string message = refusal.what();
  if (message.starts_with(refusal.param()) && !of_word((message + " ")[refusal.param().size()]))
    message.replace(0, refusal.param().size(), other->second);
  return {refusal.status(), refusal.type(), message, other->second, refusal.retry_after()};
}

}  // namespace tessera::server
