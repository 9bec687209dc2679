#include <memory>

#include "base/base64.h"
#include "base/config_reader.h"
#include "base/fail.h"
#include "base/find_text.h"
#include "base/member.h"
#include "base/stop.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

constexpr size_t kMostPatterns = 8000;  // bytes; published tokenizers have some hundred

// Ranges of Hugging Face's tokenizers; BERT's own Python begins the sixth at 0x2b820.
bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

// Calls f(code point, bytes, result) for each character; f appends to the result.
template <class F>
std::string map_characters(std::string_view text, F&& f) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    f(c, text.substr(begin, at - begin), result);
  }
  return result;
}

std::string without_marks(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string_view bytes, std::string& to) {
    if (!is_nonspacing_mark(c)) to += bytes;
  });
}

std::string clean_text(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string_view bytes, std::string& to) {
    const bool blank = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xfffd || (!blank && is_invisible(c))) return;
    to += blank || is_space(c) ? " " : bytes;
  });
}

std::string space_chinese(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string_view bytes, std::string& to) {
    if (is_chinese(c))
      (to += ' ') += bytes, to += ' ';
    else
      to += bytes;
  });
}

Normalizer bert(const Json& json, const std::string& where) {
  const bool clean = flag_in(json, "clean_text", where, true);
  const bool chinese = flag_in(json, "handle_chinese_chars", where, true);
  const bool lower = flag_in(json, "lowercase", where, true);
  const bool strip = flag_in(json, "strip_accents", where, lower);
  return [=](std::string text, TextAllowance&) {
    if (clean) text = clean_text(text);
    if (chinese) text = space_chinese(text);
    if (strip) text = without_marks(normalized(text, Form::nfd));
    if (lower) text = lowered(text);
    return text;
  };
}

Normalizer replace(const Json& json, const std::string& where) {
  const std::string content = string_in(json, "content", where);
  const auto pattern = json.find("pattern");
  require(pattern != json.end() && pattern->is_object(), ErrorCode::model,
          "{}: a Replace without pattern", where);
  if (pattern->contains("Regex")) {
    const auto regex = std::make_shared<Regex>(string_in(*pattern, "Regex", where), where);
    return [=](const std::string& text, TextAllowance& allowance) {
      std::string result;
      size_t at = 0;
      for (const auto& [begin, end] : regex->matches(text, allowance)) {
        base::check_stop();
        result.append(text, at, begin - at) += content;
        check_length(result.size());
        at = end;
      }
      return result.append(text, at);
    };
  }
  const std::string pattern_text = string_in(*pattern, "String", where);
  require(!pattern_text.empty(), ErrorCode::model, "{}: a Replace of nothing", where);
  return [=](const std::string& text, TextAllowance&) {
    std::string result;
    size_t at = 0;
    for (size_t hit; (hit = base::find_text(text, pattern_text, at)) != std::string::npos;
         at = hit + pattern_text.size()) {
      base::check_stop();
      result.append(text, at, hit - at) += content;
      check_length(result.size());
    }
    return result.append(text, at);
  };
}

Normalizer form_of(Form form) {
  return [=](const std::string& text, TextAllowance&) { return normalized(text, form); };
}

}  // namespace

std::string string_in(const Json& json, const char* key, const std::string& where,
                      const char* fallback) {
  const auto it = json.is_object() ? json.find(key) : json.end();
  if (fallback && (it == json.end() || it->is_null())) return fallback;
  require(it != json.end() && it->is_string(), ErrorCode::model,
          "{}: '{}' is {}; expected a string", where, key,
          it == json.end() ? "missing" : base::ConfigReader::shown(*it).str());
  return it->get<std::string>();
}

bool flag_in(const Json& json, const char* key, const std::string& where, bool fallback) {
  return base::ConfigReader(json, where).flag(key, fallback);
}

namespace {

Normalizer counted(Normalizer step) {
  return [step = std::move(step)](std::string text, TextAllowance& allowance) {
    text = step(std::move(text), allowance);
    check_length(text.size());
    allowance.charge(text.size());
    return text;
  };
}

// Counts steps, including nested sequences, and bytes of regular expressions.
void count(const Json& json, size_t& steps, size_t& bytes) {
  ++steps;
  const Json& pattern = base::member(base::member(json, "pattern"), "Regex");
  if (pattern.is_string()) bytes += pattern.get_ref<const std::string&>().size();
  for (const char* key : {"normalizers", "pretokenizers"})
    for (const Json& step : base::member(json, key)) count(step, steps, bytes);
}

Normalizer step_of(const Json& json, const std::string& where) {
  if (json.is_null()) return [](const std::string& text, TextAllowance&) { return text; };
  const std::string type = string_in(json, "type", where);
  if (type == "Sequence") {
    const Json& list = base::member(json, "normalizers");
    std::vector<Normalizer> steps;
    for (const Json& step : list) steps.push_back(counted(step_of(step, where)));
    return [=](std::string text, TextAllowance& allowance) {
      for (const Normalizer& step : steps) text = step(std::move(text), allowance);
      return text;
    };
  }
  if (type == "NFC") return form_of(Form::nfc);
  if (type == "NFD") return form_of(Form::nfd);
  if (type == "NFKC") return form_of(Form::nfkc);
  if (type == "NFKD") return form_of(Form::nfkd);
  if (type == "Lowercase")
    return [](const std::string& text, TextAllowance&) { return lowered(text); };
  if (type == "StripAccents")
    return [](const std::string& text, TextAllowance&) { return without_marks(text); };
  if (type == "BertNormalizer") return bert(json, where);
  if (type == "Replace") return replace(json, where);
  if (type == "Strip") {
    const bool left = flag_in(json, "strip_left", where, true);
    const bool right = flag_in(json, "strip_right", where, true);
    return [=](const std::string& text, TextAllowance&) { return stripped(text, left, right); };
  }
  if (type == "Prepend") {
    const std::string before = string_in(json, "prepend", where);
    return [=](const std::string& text, TextAllowance&) {
      return text.empty() ? text : before + text;
    };
  }
  if (type == "Precompiled") {
    const auto map = std::make_shared<Charsmap>(
        base::from_base64(string_in(json, "precompiled_charsmap", where, ""), where), where);
    return [=](const std::string& text, TextAllowance&) { return map->apply(text); };
  }
  fail(ErrorCode::model, "{}: the normalizer {} is not known", where, type.substr(0, 60));
}

}  // namespace

void check_steps(const Json& json, const std::string& where) {
  size_t steps = 0, bytes = 0;
  count(json, steps, bytes);
  require(steps <= kMostSteps && bytes <= kMostPatterns, ErrorCode::model,
          "{}: {} steps with patterns of {} bytes before text is cut into tokens; expected at most "
          "{} and {}",
          where, steps, bytes, kMostSteps, kMostPatterns);
}

Normalizer parse_normalizer(const Json& json, const std::string& where) {
  check_steps(json, where);
  return counted(step_of(json, where));
}

}  // namespace tessera::tokenizer
