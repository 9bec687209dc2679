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
    for (const auto& stop : stops)
      most_held_ = std::max(most_held_, stop.empty() ? 0 : stop.size() - 1);
  }
  /// Takes settled ids and returns new text for display; finds stop texts. The cost depends only on
  /// the new ids.
  std::string advance(const std::vector<int32_t>& ids, bool ended) {
    if (!tokens_ || stopped_) return "";
    for (; token_count_ < ids.size(); ++token_count_)
      bytes_ += tokens_->bytes_of(ids[token_count_]);
    const size_t from = searched_bytes_ > most_held_ ? searched_bytes_ - most_held_ : 0;
    for (const auto& stop : stops_)
      if (const size_t at = stop.empty()
                                ? std::string::npos
                                : base::find_text(bytes_, stop, std::min(from, bytes_.size()));
          at != std::string::npos) {
        bytes_.resize(at);
        stopped_ = true;
      }
    searched_bytes_ = bytes_.size();
    std::string text;
    shown_bytes_ += tokenizer::append_readable(visible_text(ended), ended || stopped_, text);
    return text;
  }
  /// Whether a stop text ended the answer.
  bool stopped() const { return stopped_; }
  /// The whole text, without the stop text; "" without a tokenizer.
  std::string text() const { return tokens_ ? tokenizer::readable(bytes_, true) : ""; }

 private:
  // Text at the end that may begin a stop text is held back.
  std::string_view visible_text(bool ended) const {
    const size_t held_bytes = ended || stopped_ ? 0 : most_held_;
    const std::string_view rest = std::string_view(bytes_).substr(shown_bytes_);
    return rest.substr(0, rest.size() - std::min(held_bytes, rest.size()));
  }
  const tokenizer::ByteLevelBpe* tokens_;
  const std::vector<std::string>& stops_;
  std::string bytes_;
  size_t token_count_ = 0, searched_bytes_ = 0, shown_bytes_ = 0, most_held_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::completion
