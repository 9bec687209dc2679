#include "tokenizer/spiece.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

std::string piece(const std::string& text) {
  const std::string body = "\x0a" + std::string(1, char(text.size())) + text;
  return "\x0a" + std::string(1, char(body.size())) + body;
}

TEST(Spiece, ReadsPieces) {
  const SpieceModel model = parse_spiece(piece("ab") + piece("c") + "\x12\x03\x98\x02\x01", "here");
  ASSERT_EQ(model.pieces.size(), 2u);
  EXPECT_EQ(model.pieces[0].text, "ab");
  EXPECT_TRUE(model.byte_fallback);
}

TEST(Spiece, RefusesDamage) {
  for (const std::string& bytes :
       {std::string(), std::string("\x0a"), std::string("\x0a\x7f"), piece("a") + piece("a"),
        piece(""), piece("\xff"), std::string(12, '\xff'), std::string("\x0b\x01"),
        std::string("\x0a\x07\x0a\x01z\x15\x00\x00\xc0\x7f", 9)})
    EXPECT_THROW(parse_spiece(bytes, "here"), Error) << bytes.size();
}

}  // namespace
}  // namespace tessera::tokenizer
