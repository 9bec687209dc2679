#include "caption/html_text.h"

#include <gtest/gtest.h>

namespace tessera::caption {
namespace {

// Expected texts are those of beautifulsoup4 4.15.0 over html.parser of Python 3.11.
TEST(HtmlText, IsWhatStandsBetweenTags) {
  const std::pair<const char*, const char*> cases[] = {
      {"a <b>c</b> d", "a c d"},
      {"a <3 b", "a <3 b"},
      {"x<br>y<br/>z", "xyz"},
      {"<a href='x>y'>z</a>", "z"},
      {"<p>  </p>.", " ."},
      {"<pre>  </pre>.", "  ."},
      {"<script>a<b</script>c", "c"},
      {"<script>a", ""},
      {"<ruby>a<rt>b</rt></ruby>", "a"},
      {"<!-- a --> b", " b"},
      {"<![cdata[ a ]]> b", " a  b"},
      {"<?php a ?> b", " b"},
      {"<!doctype html>a", "a"},
      {"<![what[ a", "<![what[ a"},
      {"a <b", "a <b"},
      {"</>a</ b>c", "ac"},
  };
  for (const auto& [html, text] : cases) EXPECT_EQ(html_text(html), text) << html;
}

TEST(HtmlText, ReferencesAreCharacters) {
  EXPECT_EQ(html_text("&eacute;&copy;&#65;&#x42;."),
            "\xc3\xa9\xc2\xa9"
            "AB.");
  EXPECT_EQ(html_text("&#0;&#xd800;&#128;."), "\xef\xbf\xbd\xef\xbf\xbd\xe2\x82\xac.");
  EXPECT_EQ(html_text("&none; & &; &amp"), "&none & &; &amp");
  EXPECT_EQ(html_text("&#;a"), "&#;a");
}

TEST(HtmlText, UnescapesAsPython) {
  EXPECT_EQ(html_unescaped("&lt;&amp;amp; &notit; &eacutex &#1; &#x2f &"),
            "<&amp; \xc2\xac"
            "it; \xc3\xa9x  / &");
}

TEST(HtmlText, ControlCharactersAreThoseOfWindows) {
  EXPECT_EQ(windows_1252(0x80), 0x20acu);
  EXPECT_EQ(windows_1252(0x81), 0x81u);
  EXPECT_EQ(windows_1252('a'), char32_t{'a'});
}

}  // namespace
}  // namespace tessera::caption
