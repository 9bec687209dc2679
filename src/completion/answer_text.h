#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/find_text.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::completion {

/// The text of a single answer: whole characters, up to a stop text.
class AnswerText {
 public:
  AnswerText(const tokenizer::ByteLevelBpe* tokens, const std::vector<std::string>& stops)
      : tokens_(tokens), stops_(stops) {
    for (const auto& stop : stops) hold_ = std::max(hold_, stop.empty() ? 0 : stop.size() - 1);
  }
  /// Takes settled ids and returns new text for display; finds stop texts. The cost depends only on
  /// the new ids.
  std::string advance(const std::vector<int32_t>& ids, bool ended) {
    if (!tokens_ || stopped_) return "";
    for (; taken_ < ids.size(); ++taken_) bytes_ += tokens_->bytes_of(ids[taken_]);
    const size_t from = searched_ > hold_ ? searched_ - hold_ : 0;
    for (const auto& stop : stops_)
      if (const size_t at = stop.empty()
                                ? std::string::npos
                                : base::find_text(bytes_, stop, std::min(from, bytes_.size()));
          at != std::string::npos) {
        bytes_.resize(at);
        stopped_ = true;
      }
    searched_ = bytes_.size();
    std::string text;
    shown_ += tokenizer::append_readable(may_be_shown(ended), ended || stopped_, text);
    return text;
  }
  /// Whether a stop text ended the answer.
  bool stopped() const { return stopped_; }
  /// The whole text, without the stop text; "" without a tokenizer.
  std::string text() const { return tokens_ ? tokenizer::readable(bytes_, true) : ""; }

 private:
  // Text at the end that may begin a stop text is held back.
  std::string_view may_be_shown(bool ended) const {
    const size_t held_bytes = ended || stopped_ ? 0 : hold_;
    const std::string_view rest = std::string_view(bytes_).substr(shown_);
    return rest.substr(0, rest.size() - std::min(held_bytes, rest.size()));
  }
  const tokenizer::ByteLevelBpe* tokens_;
  const std::vector<std::string>& stops_;
  std::string bytes_;
  size_t taken_ = 0, searched_ = 0, shown_ = 0, hold_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::completion
