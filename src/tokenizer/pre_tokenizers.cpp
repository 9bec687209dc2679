#include <memory>

#include "base/fail.h"
#include "base/member.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

using base::Json;
using Pieces = std::vector<std::string>;

const char* const kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Cuts at characters by the value of f: 0 part of a word, 1 dropped, 2 a separate piece.
template <class F>
void cut(std::string_view text, Pieces& pieces, F&& f) {
  std::string word;
  auto flush = [&] {
    if (!word.empty()) pieces.push_back(std::move(word));
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t begin = at;
    const int kind = f(next_code_point(text, at));
    if (kind != 0) flush();
    if (kind == 0) word += text.substr(begin, at - begin);
    if (kind == 2) pieces.emplace_back(text.substr(begin, at - begin));
  }
  flush();
}

bool is_bert_punctuation(char32_t c) {
  const bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                     (c >= 123 && c <= 126);
  return ascii || is_punctuation(c);
}

// A span of the text that matches or does not match.
struct Span {
  size_t begin, end;
  bool match;
};
std::vector<Span> spans_of(const Regex& regex, std::string_view text, bool invert,
                           TextAllowance& allowance) {
  std::vector<Span> spans;
  size_t at = 0;
  for (const auto& [begin, end] : regex.matches(text, allowance)) {
    if (begin > at) spans.push_back({at, begin, invert});
    spans.push_back({begin, end, !invert});
    at = end;
  }
  if (at < text.size()) spans.push_back({at, text.size(), invert});
  return spans;
}

void split(std::string_view text, Pieces& pieces, const std::vector<Span>& spans,
           const std::string& behavior) {
  bool joins = false, before = false;
  for (const Span& s : spans) {
    if (behavior == "Removed" && s.match) continue;
    const std::string_view piece = text.substr(s.begin, s.end - s.begin);
    const bool join = behavior == "MergedWithPrevious" ? s.match && joins && !before
                      : behavior == "MergedWithNext"   ? !s.match && joins && before
                      : behavior == "Contiguous"       ? joins && before == s.match
                                                       : false;
    if (join)
      pieces.back() += piece;
    else
      pieces.emplace_back(piece);
    joins = true;
    before = s.match;
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 128 && !std::isalnum(static_cast<unsigned char>(c)))
      result += '\\';
    result += c;
  }
  return result;
}

PreTokenizer splitter(const Json& json, const std::string& where) {
  const auto pattern = json.find("pattern");
  require(pattern != json.end() && pattern->is_object(), ErrorCode::model,
          "{}: a Split without pattern", where);
  const std::string source = pattern->contains("Regex")
                                 ? string_in(*pattern, "Regex", where)
                                 : escaped(string_in(*pattern, "String", where));
  const auto regex = std::make_shared<Regex>(source, where);
  const std::string behavior = string_in(json, "behavior", where, "Isolated");
  const bool invert = flag_in(json, "invert", where, false);
  return [=](std::string_view text, Pieces& pieces, TextAllowance& allowance) {
    split(text, pieces, spans_of(*regex, text, invert, allowance), behavior);
  };
}

PreTokenizer byte_level(const Json& json, const std::string& where) {
  const bool prefix = flag_in(json, "add_prefix_space", where, true);
  const auto regex =
      flag_in(json, "use_regex", where, true) ? std::make_shared<Regex>(kGpt2, where) : nullptr;
  return [=](std::string_view text, Pieces& pieces, TextAllowance& allowance) {
    std::string whole(text);
    if (prefix && whole.compare(0, 1, " ") != 0) whole = " " + whole;
    Pieces cuts;
    // The pattern matches every single character entirely.
    if (regex && !whole.empty() && whole.size() > length_of(whole[0]))
      split(whole, cuts, spans_of(*regex, whole, false, allowance), "Isolated");
    else
      cuts.push_back(whole);
    for (const std::string& piece : cuts) pieces.push_back(bytes_as_characters(piece));
  };
}

PreTokenizer metaspace(const Json& json, const std::string& where) {
  const std::string mark = string_in(json, "replacement", where, "\xe2\x96\x81");
  require(!mark.empty() && mark.size() == length_of(mark[0]), ErrorCode::model,
          "{}: Metaspace with the mark {}; expected one character", where, base::printable(mark));
  const bool adds_space = flag_in(json, "add_prefix_space", where, true);
  const std::string scheme =
      string_in(json, "prepend_scheme", where, adds_space ? "always" : "never");
  require(scheme == "always" || scheme == "never", ErrorCode::model,
          "{}: Metaspace with prepend_scheme {}; always and never are known, and for T5 any (its "
          "tokenizer_config.json says \"tokenizer_class\": \"T5Tokenizer\")",
          where, scheme.substr(0, 60));
  const bool cuts = flag_in(json, "split", where, true), prepend = scheme == "always";
  return [=](std::string_view text, Pieces& pieces, TextAllowance&) {
    std::string whole;
    for (char c : text) c == ' ' ? whole += mark : whole += c;
    if (prepend && whole.compare(0, mark.size(), mark) != 0) whole = mark + whole;
    for (size_t at = 0; at < whole.size();) {
      const size_t next = cuts ? whole.find(mark, at + 1) : std::string::npos;
      pieces.push_back(whole.substr(at, next == std::string::npos ? next : next - at));
      at = std::min(next, whole.size());
    }
  };
}

PreTokenizer counted(PreTokenizer step) {
  return [step = std::move(step)](std::string_view text, Pieces& pieces, TextAllowance& allowance) {
    const size_t before = pieces.size();
    step(text, pieces, allowance);
    size_t bytes = 0;
    for (size_t i = before; i < pieces.size(); ++i) bytes += pieces[i].size();
    check_length(bytes);
    allowance.charge(bytes);
  };
}

PreTokenizer step_of(const Json& json, const std::string& where) {
  if (json.is_null())
    return [](std::string_view text, Pieces& pieces, TextAllowance&) { pieces.emplace_back(text); };
  const std::string type = string_in(json, "type", where);
  if (type == "Sequence") {
    const Json& list = base::member(json, "pretokenizers");
    std::vector<PreTokenizer> steps;
    for (const Json& step : list) steps.push_back(counted(step_of(step, where)));
    return [=](std::string_view text, Pieces& pieces, TextAllowance& allowance) {
      Pieces now{std::string(text)};
      for (const PreTokenizer& step : steps) {
        Pieces next;
        size_t bytes = 0;
        for (const std::string& piece : now) {
          const size_t before = next.size();
          step(piece, next, allowance);
          for (size_t i = before; i < next.size(); ++i) bytes += next[i].size();
          check_length(bytes);
        }
        now = std::move(next);
      }
      for (std::string& piece : now) pieces.push_back(std::move(piece));
    };
  }
  if (type == "WhitespaceSplit")
    return [](std::string_view text, Pieces& pieces, TextAllowance&) {
      cut(text, pieces, [](char32_t c) { return is_space(c) ? 1 : 0; });
    };
  if (type == "BertPreTokenizer")
    return [](std::string_view text, Pieces& pieces, TextAllowance&) {
      cut(text, pieces, [](char32_t c) {
        return is_space(c) ? 1 : is_bert_punctuation(c) ? 2 : 0;
      });
    };
  if (type == "Split") return splitter(json, where);
  if (type == "ByteLevel") return byte_level(json, where);
  if (type == "Metaspace") return metaspace(json, where);
  fail(ErrorCode::model, "{}: the pre-tokenizer {} is not known", where, type.substr(0, 60));
}

}  // namespace

PreTokenizer parse_pre_tokenizer(const Json& json, const std::string& where) {
  check_steps(json, where);
  return counted(step_of(json, where));
}

}  // namespace tessera::tokenizer
