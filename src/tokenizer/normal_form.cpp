#include "tokenizer/normal_form.h"

#include <unicode/normalizer2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/fail.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

const icu::Normalizer2& properties_of(Form form) {
  UErrorCode status = U_ZERO_ERROR;
  const bool canonical = form == Form::nfc || form == Form::nfd;
  const icu::Normalizer2* const normalizer = canonical ? icu::Normalizer2::getNFCInstance(status)
                                                       : icu::Normalizer2::getNFKCInstance(status);
  require(U_SUCCESS(status), ErrorCode::model,
          "normalisation failed in ICU: {}; is its data installed?", u_errorName(status));
  return *normalizer;
}

// Receives decomposed code points and writes them in canonical order, composed or not.
class Writer {
 public:
  Writer(const icu::Normalizer2& properties, bool composes, std::string& to)
      : properties_(properties), composes_(composes), to_(to) {}

  void add(UChar32 point) {
    base::check_stop();
    const uint8_t order = properties_.getCombiningClass(point);
    if (order > 0) {
      marks_.push_back({point, order});
      return;
    }
    finish_marks();
    if (starter_ >= 0 && rest_.empty() && composes_) {
      const UChar32 composite = properties_.composePair(starter_, point);
      if (composite >= 0) {
        starter_ = composite;
        return;
      }
    }
    write();
    starter_ = point;
  }
  void finish() {
    finish_marks();
    write();
  }

 private:
  struct Mark {
    UChar32 point;
    uint8_t order;  // the canonical combining class
  };

  // A counting sort: stable, and linear for runs of any length.
  void sort_marks() {
    const auto later = [](const Mark& a, const Mark& b) { return a.order < b.order; };
    if (std::is_sorted(marks_.begin(), marks_.end(), later)) return;
    std::array<size_t, 257> begins{};
    for (const Mark& mark : marks_) ++begins[mark.order + 1u];
    for (size_t order = 1; order < begins.size(); ++order) begins[order] += begins[order - 1];
    std::vector<Mark> sorted(marks_.size());
    for (const Mark& mark : marks_) {
      base::check_stop();
      sorted[begins[mark.order]++] = mark;
    }
    marks_.swap(sorted);
  }
  // A mark composes with the starter unless an equal or higher class is in between.
  void finish_marks() {
    sort_marks();
    uint8_t last = 0;
    for (const Mark& mark : marks_) {
      base::check_stop();
      const bool may = composes_ && starter_ >= 0 && last < mark.order;
      const UChar32 composite = may ? properties_.composePair(starter_, mark.point) : -1;
      if (composite >= 0) {
        starter_ = composite;
        continue;
      }
      last = mark.order;
      rest_.push_back(mark.point);
    }
    marks_.clear();
  }
  void write() {
    if (starter_ >= 0) append(to_, static_cast<char32_t>(starter_));
    for (const UChar32 point : rest_) append(to_, static_cast<char32_t>(point));
    starter_ = -1;
    rest_.clear();
    check_length(to_.size());
  }

  const icu::Normalizer2& properties_;
  const bool composes_;
  std::string& to_;
  UChar32 starter_ = -1;       // base for composing marks
  std::vector<UChar32> rest_;  // later marks that did not compose
  std::vector<Mark> marks_;    // since the last starter, in input order
};

}  // namespace

std::string normalized(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  const icu::Normalizer2& properties = properties_of(form);
  std::string result;
  result.reserve(text.size());
  Writer writer(properties, form == Form::nfc || form == Form::nfkc, result);
  icu::UnicodeString parts;
  for (size_t at = 0; at < text.size();) {
    const auto point = static_cast<UChar32>(next_code_point(text, at));
    if (point < 0xa0 || !properties.getDecomposition(point, parts)) {
      writer.add(point);
      continue;
    }
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
      writer.add(parts.char32At(i));
  }
  writer.finish();
  return result;
}

}  // namespace tessera::tokenizer
