#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/byte_level_bpe.h"

namespace tessera::completion {

/// What becomes of one prompt's tokens as text, whole characters up to a stop text.
class AnswerText {
 public:
  AnswerText(const tokenizer::ByteLevelBpe* tokens, const std::vector<std::string>& stops)
      : tokens_(tokens), stops_(stops) {
    for (const auto& stop : stops) hold_ = std::max(hold_, stop.empty() ? 0 : stop.size() - 1);
  }
  /// New settled ids -> new text that may be shown; finds stop texts.
  std::string advance(const std::vector<int32_t>& ids, bool ended) {
    if (!tokens_ || stopped_) return "";
    for (; taken_ < ids.size(); ++taken_) bytes_ += tokens_->bytes_of(ids[taken_]);
    for (const auto& stop : stops_)
      if (const size_t at = stop.empty() ? std::string::npos : bytes_.find(stop);
          at != std::string::npos) {
        bytes_.resize(at);
        stopped_ = true;
      }
    std::string text = tokenizer::readable(bytes_, ended || stopped_);
    if (!ended && !stopped_) text = text.substr(0, held(text));
    if (text.size() <= shown_) return "";
    return text.substr(std::exchange(shown_, text.size()));
  }
  /// Whether a stop text has ended it.
  bool stopped() const { return stopped_; }
  /// All of it, without the stop text; "" without a tokenizer.
  std::string text() const { return tokens_ ? tokenizer::readable(bytes_, true) : ""; }

 private:
  // A stop text may have begun: its beginning is not shown, nor is half a character.
  size_t held(const std::string& text) const {
    size_t end = text.size() > hold_ ? text.size() - hold_ : 0;
    while (end > 0 && end < text.size() && (text[end] & 0xc0) == 0x80) --end;
    return end;
  }
  const tokenizer::ByteLevelBpe* tokens_;
  const std::vector<std::string>& stops_;
  std::string bytes_;
  size_t taken_ = 0, shown_ = 0, hold_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::completion
