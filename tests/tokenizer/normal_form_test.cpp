#include "tokenizer/normal_form.h"

#include <gtest/gtest.h>
#include <unicode/normalizer2.h>

#include <random>

#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

// The normal form by ICU, right but slow.
std::string by_icu(const std::string& text, Form form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* const all[] = {
      icu::Normalizer2::getNFCInstance(status), icu::Normalizer2::getNFDInstance(status),
      icu::Normalizer2::getNFKCInstance(status), icu::Normalizer2::getNFKDInstance(status)};
  std::string made;
  all[static_cast<int>(form)]
      ->normalize(icu::UnicodeString::fromUTF8(text), status)
      .toUTF8String(made);
  EXPECT_TRUE(U_SUCCESS(status));
  return made;
}

void expect_as_icu(const std::string& text) {
  for (const Form form : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd})
    EXPECT_EQ(normalized(text, form), by_icu(text, form)) << text << " " << static_cast<int>(form);
}

TEST(NormalForm, ComposesAndDecomposes) {
  EXPECT_EQ(normalized("e\xcc\x81", Form::nfc), "\xc3\xa9");
  EXPECT_EQ(normalized("\xc3\xa9", Form::nfd), "e\xcc\x81");
  EXPECT_EQ(normalized("\xef\xac\x81", Form::nfkc), "fi");
  EXPECT_EQ(normalized("\xef\xac\x81", Form::nfc), "\xef\xac\x81");
  EXPECT_EQ(normalized("abc", Form::nfkd), "abc");
  EXPECT_EQ(normalized("", Form::nfc), "");
}

TEST(NormalForm, IsThatOfIcuForEveryCodePoint) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    if (c >= 0x20000 && c < 0xe0000 && c % 97 != 0 && (c < 0x2f800 || c > 0x2fa20)) continue;
    std::string text = "a";
    append(text, c);
    append(text, 0x301);
    for (const Form form : {Form::nfc, Form::nfkd})
      ASSERT_EQ(normalized(text, form), by_icu(text, form)) << std::hex << uint32_t{c};
  }
}

TEST(NormalForm, IsThatOfIcuForMixturesOfMarks) {
  // Letters, marks of several classes, decomposable marks, Hangul, vowels that combine backwards.
  const std::vector<char32_t> some = {
      'a',     'o',     0xe9,    0x1ea5, 0x301,  0x327,  0x334,  0x345,  0x344,  0xf71,  0xf72,
      0xf73,   0xf75,   0xf81,   0xff9e, 0x304b, 0x3099, 0x1100, 0x1161, 0x11a8, 0xac00, 0x9c7,
      0x9be,   0xdd9,   0xdcf,   0xdca,  0x5d0,  0x5b7,  0xfb2c, 0x64b,  0xfc5e, 0x2126, 0x212b,
      0x1d15e, 0x1d165, 0x1d16e, 0x340,  0x200d, 0xfdfa, ' ',    0x1f00, 0x1fbe, 0x3b1};
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) append(text, some[random() % some.size()]);
    expect_as_icu(text);
  }
  for (const char32_t mark : {0x327u, 0xf73u, 0x344u}) {
    std::string text = "a";
    for (int i = 0; i < 300; ++i) append(text, i % 2 == 0 ? char32_t{0x301} : char32_t{mark});
    expect_as_icu(text + "b");
  }
}

}  // namespace
}  // namespace tessera::tokenizer
