#include "tokenizer/byte_level_bpe.h"

#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr int64_t kMostTokens = int64_t{1} << 24;

// GPT-2 writes bytes as printable characters: 33-126, 161-172 and 174-255 stand for themselves, the
// others follow from U+0100 on.
const std::vector<int>& bytes_of_characters() {
  static const std::vector<int> table = [] {
    std::vector<int> by_character(324, -1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      by_character[static_cast<size_t>(itself ? b : next++)] = b;
    }
    return by_character;
  }();
  return table;
}

// A token as the file spells it -> its bytes; false: it holds a character that stands for no byte.
bool to_bytes(const std::string& spelled, std::string& bytes) {
  int32_t at = 0;
  const auto length = static_cast<int32_t>(spelled.size());
  while (at < length) {
    UChar32 c = 0;
    U8_NEXT(spelled.data(), at, length, c);
    if (c < 0 || c >= 324 || bytes_of_characters()[static_cast<size_t>(c)] < 0) return false;
    bytes.push_back(static_cast<char>(bytes_of_characters()[static_cast<size_t>(c)]));
  }
  return true;
}

std::string utf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

bool flag(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}
std::string text_of(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

struct ByteLevelBpe::Splitter {
  std::unique_ptr<icu::RegexPattern> pattern;

  // Matches and what stands between them, each a piece.
  void operator()(const icu::UnicodeString& text, std::vector<icu::UnicodeString>& pieces) const {
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(text, status));
    int32_t at = 0;
    while (U_SUCCESS(status) && matcher->find(status) && U_SUCCESS(status)) {
      const int32_t begin = matcher->start(status), end = matcher->end(status);
      if (begin > at) pieces.emplace_back(text, at, begin - at);
      if (end > begin) pieces.emplace_back(text, begin, end - begin);
      at = end;
    }
    require(U_SUCCESS(status), ErrorCode::usage, "the text cannot be cut into words: {}",
            u_errorName(status));
    if (at < text.length()) pieces.emplace_back(text, at);
  }
};

ByteLevelBpe::~ByteLevelBpe() = default;

void ByteLevelBpe::refuse(const std::string& what) const {
  fail(ErrorCode::model, "{}: {}; expected a byte-level BPE tokenizer.json", where_, what);
}

ByteLevelBpe::ByteLevelBpe(const Json& json, const std::string& where) : where_(where) {
  if (!json.is_object() || !json.contains("model")) refuse("there is no 'model'");
  read_model(json.at("model"));
  if (json.contains("added_tokens")) read_added(json.at("added_tokens"));
  if (json.contains("normalizer") && !json.at("normalizer").is_null()) {
    const std::string type = text_of(json.at("normalizer"), "type");
    if (type != "NFC") refuse("the normalizer " + base::printable(type) + " is not supported");
    nfc_ = true;
  }
  if (!json.contains("pre_tokenizer") || json.at("pre_tokenizer").is_null())
    refuse("there is no 'pre_tokenizer'");
  read_splitters(json.at("pre_tokenizer"));
}

void ByteLevelBpe::set_token(int64_t id, const std::string& token) {
  if (id < 0 || id >= kMostTokens) refuse(fmt::format("the id {} is out of range", id));
  const auto at = static_cast<size_t>(id);
  if (tokens_.size() <= at) {
    tokens_.resize(at + 1);
    special_.resize(at + 1);
  }
  tokens_[at] = token;
}

void ByteLevelBpe::read_model(const Json& model) {
  const std::string type = text_of(model, "type");
  if (type != "BPE" && !type.empty())
    refuse("a model of type " + base::printable(type) + " is not supported");
  if (!model.contains("vocab") || !model.at("vocab").is_object() || !model.contains("merges") ||
      !model.at("merges").is_array())
    refuse("the model has no 'vocab' or no 'merges'");
  for (const auto& [spelled, id] : model.at("vocab").items()) {
    if (!id.is_number_integer()) refuse("the token " + base::printable(spelled) + " has no id");
    std::string bytes;
    if (!to_bytes(spelled, bytes)) bytes = spelled;  // an added token, as it is
    set_token(id.get<int64_t>(), bytes);
    ids_[bytes] = static_cast<int32_t>(id.get<int64_t>());
  }
  int32_t rank = 0;
  for (const auto& merge : model.at("merges")) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      if (space == std::string::npos) refuse("the merge " + base::printable(text) + " is no pair");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      refuse("a merge is no pair");
    }
    std::string a, b;
    const bool bytes = to_bytes(left, a) && to_bytes(right, b);
    const auto first = ids_.find(a), second = ids_.find(b), both = ids_.find(a + b);
    if (!bytes || first == ids_.end() || second == ids_.end() || both == ids_.end())
      refuse("the merge " + base::printable(left + " " + right) + " is not in the vocabulary");
    merges_.emplace(std::pair(first->second, second->second), std::pair(rank++, both->second));
  }
  ignore_merges_ = flag(model, "ignore_merges", false);
}

void ByteLevelBpe::read_added(const Json& list) {
  if (!list.is_array()) refuse("'added_tokens' is no list");
  for (const auto& item : list) {
    if (!item.is_object() || !item.contains("id") || !item.at("id").is_number_integer() ||
        text_of(item, "content").empty())
      refuse("an added token has no 'id' or no 'content'");
    Added token{text_of(item, "content"), static_cast<int32_t>(item.at("id").get<int64_t>()),
                flag(item, "special", false), flag(item, "lstrip", false),
                flag(item, "rstrip", false)};
    set_token(item.at("id").get<int64_t>(), token.content);
    special_[static_cast<size_t>(token.id)] = token.special;
    added_.push_back(std::move(token));
  }
  std::stable_sort(added_.begin(), added_.end(), [](const Added& a, const Added& b) {
    return a.content.size() > b.content.size();
  });
}

void ByteLevelBpe::read_splitters(const Json& pre) {
  const std::string type = text_of(pre, "type");
  auto add = [&](const std::string& text) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError place;
    auto splitter = std::make_unique<Splitter>();
    splitter->pattern.reset(
        icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(text), 0, place, status));
    if (U_FAILURE(status)) refuse("the pattern " + base::printable(text) + " cannot be read");
    splitters_.push_back(std::move(splitter));
  };
  if (type == "Sequence" && pre.contains("pretokenizers") && pre.at("pretokenizers").is_array()) {
    for (const auto& part : pre.at("pretokenizers")) read_splitters(part);
  } else if (type == "ByteLevel") {
    prefix_space_ = prefix_space_ || flag(pre, "add_prefix_space", true);
    if (flag(pre, "use_regex", true)) add(kGpt2);
  } else if (type == "Split") {
    const Json none = Json::object();
    const Json& pattern = pre.contains("pattern") ? pre.at("pattern") : none;
    const std::string regex = text_of(pattern, "Regex");
    if (regex.empty() || flag(pre, "invert", false) || text_of(pre, "behavior") != "Isolated")
      refuse("a Split other than by an isolated regular expression is not supported");
    add(regex);
  } else {
    refuse("the pre-tokenizer " + base::printable(type) + " is not supported");
  }
}

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text) const {
  require(text.size() < size_t{1} << 30, ErrorCode::usage,
          "the text has {} bytes; expected less than 1 GB", text.size());
  require(whole_characters(text) == text.size(), ErrorCode::usage,
          "the text is not UTF-8 behind byte {}", whole_characters(text));
  std::vector<int32_t> ids;
  size_t plain = 0;  // where the text begins that is no added token
  for (size_t at = 0; at < text.size();) {
    const auto found = std::find_if(added_.begin(), added_.end(), [&](const Added& token) {
      return text.substr(at, token.content.size()) == token.content;
    });
    if (found == added_.end()) {
      ++at;
      continue;
    }
    size_t end = at, next = at + found->content.size();
    if (found->lstrip)
      while (end > plain && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
    if (found->rstrip)
      while (next < text.size() && std::isspace(static_cast<unsigned char>(text[next]))) ++next;
    encode_plain(text.substr(plain, end - plain), ids);
    ids.push_back(found->id);
    plain = at = next;
  }
  encode_plain(text.substr(plain), ids);
  return ids;
}

void ByteLevelBpe::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  auto whole = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  if (nfc_) {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
    if (U_SUCCESS(status)) whole = nfc->normalize(whole, status);
    require(U_SUCCESS(status), ErrorCode::usage, "the text cannot be normalised: {}",
            u_errorName(status));
  }
  if (prefix_space_ && whole.charAt(0) != u' ') whole.insert(0, u' ');
  std::vector<icu::UnicodeString> pieces{whole};
  for (const auto& splitter : splitters_) {
    std::vector<icu::UnicodeString> finer;
    for (const auto& piece : pieces) (*splitter)(piece, finer);
    pieces = std::move(finer);
  }
  for (const auto& piece : pieces) encode_word(utf8(piece), ids);
}

// The pair of lowest rank is merged, the leftmost first, until none is left.
void ByteLevelBpe::encode_word(const std::string& word, std::vector<int32_t>& ids) const {
  if (ignore_merges_)
    if (const auto whole = ids_.find(word); whole != ids_.end()) {
      ids.push_back(whole->second);
      return;
    }
  std::vector<int32_t> parts;
  for (char c : word) {
    const auto byte = ids_.find(std::string(1, c));
    require(byte != ids_.end(), ErrorCode::usage, "{}: the vocabulary has no token for byte {}",
            where_, static_cast<unsigned char>(c));
    parts.push_back(byte->second);
  }
  while (parts.size() > 1) {
    int32_t best = std::numeric_limits<int32_t>::max(), merged = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto pair = merges_.find({parts[i], parts[i + 1]});
      if (pair == merges_.end() || pair->second.first >= best) continue;
      best = pair->second.first;
      merged = pair->second.second;
      at = i;
    }
    if (merged < 0) break;
    parts[at] = merged;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  ids.insert(ids.end(), parts.begin(), parts.end());
}

std::string ByteLevelBpe::bytes_of(int32_t id, bool skip_special) const {
  if (id < 0 || id >= size()) return "";
  const auto at = static_cast<size_t>(id);
  return skip_special && special_[at] ? "" : tokens_[at];
}

int32_t ByteLevelBpe::id_of(const std::string& token) const {
  for (const Added& added : added_)
    if (added.content == token) return added.id;
  std::string bytes;
  if (!to_bytes(token, bytes)) bytes = token;
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

size_t whole_characters(std::string_view text) {
  int32_t at = 0;
  const auto length = static_cast<int32_t>(text.size());
  while (at < length) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(text.data(), at, length, c);
    if (c < 0) return static_cast<size_t>(begin);
  }
  return text.size();
}

std::string readable(std::string_view bytes, bool ended) {
  std::string out;
  int32_t at = 0;
  const auto length = static_cast<int32_t>(bytes.size());
  while (at < length) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(bytes.data(), at, length, c);
    if (c >= 0) {
      out.append(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(at - begin)));
    } else if (!ended && at == length &&
               length - begin < 1 + U8_COUNT_TRAIL_BYTES(uint8_t(bytes[size_t(begin)]))) {
      break;  // the rest of the character may still come
    } else {
      out += "\xef\xbf\xbd";
    }
  }
  return out;
}

}  // namespace tessera::tokenizer
