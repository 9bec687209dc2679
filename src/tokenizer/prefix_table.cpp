#include "tokenizer/prefix_table.h"

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kLongestToken = 512;  // bounds what a character of text can cost

}  // namespace

PrefixTable::PrefixTable(Texts texts, const std::string& where) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const auto& entry) { return entry.first.empty(); });
  for (const auto& entry : texts_)
    if (entry.first.size() > kLongestToken)
      fail(ErrorCode::model, "{}: the token {} has {} bytes; expected at most {}", where,
           base::printable(entry.first), entry.first.size(), kLongestToken);
  std::stable_sort(texts_.begin(), texts_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  texts_.erase(std::unique(texts_.begin(), texts_.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; }),
               texts_.end());
  for (const auto& entry : texts_) ++begins_[static_cast<unsigned char>(entry.first[0]) + 1u];
  for (size_t b = 1; b < begins_.size(); ++b) begins_[b] += begins_[b - 1];
}

}  // namespace tessera::tokenizer
