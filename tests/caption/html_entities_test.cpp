#include "caption/html_entities.h"

#include <gtest/gtest.h>

namespace tessera::caption {
namespace {

TEST(HtmlEntities, AreFoundByName) {
  ASSERT_NE(html_entity("eacute"), nullptr);
  EXPECT_EQ(html_entity("eacute")->text, "\xc3\xa9");
  EXPECT_TRUE(html_entity("eacute")->bare);
  EXPECT_FALSE(html_entity("hellip")->bare);
  EXPECT_EQ(html_entity("bne")->text, "=\xe2\x83\xa5");  // two code points
  EXPECT_EQ(html_entity("aacute")->text, "\xc3\xa1");    // the first
  EXPECT_EQ(html_entity("zwnj")->text, "\xe2\x80\x8c");  // the last
  EXPECT_EQ(html_entity("Eacute"), nullptr);
  EXPECT_EQ(html_entity(""), nullptr);
}

}  // namespace
}  // namespace tessera::caption
