#include "tokenizer/wordpiece.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(WordPiece, TakesTheLongest) {
  WordPieceTables t;
  t.vocabulary = {{"[UNK]", 0}, {"un", 1}, {"u", 2}, {"##d", 3}, {"##do", 4}, {"##ne", 5}};
  const WordPiece model(t, "here");
  std::vector<int32_t> ids;
  model.encode("undone", ids);
  model.encode("undx", ids);
  model.encode(std::string(101, 'u'), ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 4, 5, 0, 0}));
  for (const auto& [text, id] : t.vocabulary) EXPECT_EQ(model.text_of(id), text);
  t.unknown = "none";
  EXPECT_THROW(WordPiece(t, "here"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
