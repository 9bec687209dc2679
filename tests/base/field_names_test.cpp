#include "tessera/field_names.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera {
namespace {

std::string as_options(std::string_view message) {
  return spell_fields(message, [](const std::string& field) { return "--" + field; });
}

TEST(FieldNames, AreSpelledByTheProgram) {
  for (const auto& [message, spelled] :
       {std::pair{"`steps` 0: expected 1 or more", "--steps 0: expected 1 or more"},
        {"use a smaller size or `count`", "use a smaller size or --count"},
        {"the VAE's `steps` and the models' `seed`", "the VAE's --steps and the models' --seed"},
        {"'a `steps` b' is no class; `count`", "'a `steps` b' is no class; --count"},
        {"'it's `steps`' is none: `steps`", "'it's `steps`' is none: --steps"},
        {"`Steps`, `a b`, ``, `x-y`, `end", "`Steps`, `a b`, ``, `x-y`, `end"},
        {"`a``b`", "--a--b"},
        {"`", "`"},
        {"'", "'"},
        {"", ""}})
    EXPECT_EQ(as_options(message), spelled);
}

TEST(FieldNames, ArePlainWithoutBackticks) {
  EXPECT_EQ(plain_fields("`top_k` 0 of '`top_k`'"), "top_k 0 of '`top_k`'");
}

TEST(FieldNames, TheFirstOneIsWhatAMessageIsAbout) {
  EXPECT_EQ(field_of("`guidance_rescale` 2: expected `guidance`"), "guidance_rescale");
  EXPECT_EQ(field_of("'x' takes classes: give `classes`"), "");
  EXPECT_EQ(field_of("`not closed"), "");
  EXPECT_EQ(field_of(""), "");
  EXPECT_EQ(Error(ErrorCode::usage, "`steps` 0: no").field(), "steps");
}

}  // namespace
}  // namespace tessera
