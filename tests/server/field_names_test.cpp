#include "server/field_names.h"

#include <gtest/gtest.h>

#include "server/option_names.h"

namespace tessera::server {
namespace {

TEST(FieldNames, AreThoseOfABody) {
  for (const auto& [said, told] :
       {std::pair{"`steps` 0: expected 1 or more", "steps 0: expected 1 or more"},
        {"use a smaller size or `count`", "use a smaller size or count"},
        {"'x' takes classes: give `classes`", "'x' takes classes: give classes"},
        {"`text_tokens` 0, `noise` x (`top_k`)", "text_tokens 0, noise x (top_k)"},
        {"it needs `true_guidance` above 1", "it needs true_guidance above 1"},
        {"2.0 MB, `memory_budget` allows 1 MB", "2.0 MB, the server's --memory-budget allows 1 MB"},
        {"`plan` cfg=2: leave out cfg=", "the server's --plan cfg=2: leave out cfg="},
        {"a ` and `` two, `Steps`, `steps", "a ` and `` two, `Steps`, `steps"},
        {"the VAE's `steps` and the models' `seed`", "the VAE's steps and the models' seed"},
        {"", ""},
        {"`", "`"},
        {"``", "``"},
        {"'", "'"}})
    EXPECT_EQ(in_fields(said), told);
}

TEST(FieldNames, WhatIsQuotedStays) {
  EXPECT_EQ(in_fields("'a `steps` b' is no class; `count`"), "'a `steps` b' is no class; count");
  EXPECT_EQ(in_fields("'it's `steps`' is none: `steps`"), "'it's `steps`' is none: steps");
}

TEST(FieldNames, FoldersOfTheServerAreNotTold) {
  for (const auto& [said, told] :
       {std::pair{"/srv/models/x/chat_template.jinja: line 3: tool calls have no place",
                  "chat_template.jinja: line 3: tool calls have no place"},
        {"cannot write /var/lib/x/1.png: the disk is full", "cannot write 1.png: the disk is full"},
        {"it is there (/a/b/c.json)", "it is there (c.json)"},
        {"/srv/models/", ""},
        {"of /a/steps", "of steps"},
        {"top-k/top-p, 3/4 or a / b, a//b", "top-k/top-p, 3/4 or a / b, a//b"},
        {"GET /metrics", "GET /metrics"},
        {"'/a/b' is no class", "'/a/b' is no class"},
        {"/", "/"},
        {"//", ""}})
    EXPECT_EQ(in_fields(said), told);
}

TEST(FieldNames, WhatASentenceBeginsWithIsToBlame) {
  EXPECT_EQ(field_blamed("`guidance_rescale` 2: expected `guidance`"), "guidance_rescale");
  EXPECT_EQ(field_blamed("temperature 101; expected 0"), "temperature");
  EXPECT_EQ(field_blamed("`decode` 'x' is not known"), "decode");
  EXPECT_EQ(field_blamed("`classes` 'x': there is none"), "classes");
  EXPECT_EQ(field_blamed("`chat`: 'tools' is not read"), "tools");
  EXPECT_EQ(field_blamed("`chat`: message 1 has no 'content'"), "messages");
  EXPECT_EQ(field_blamed("prompt 0 holds no token"), "prompt");
  EXPECT_EQ(field_blamed("`plan` x: no"), "");
  EXPECT_EQ(field_blamed("'x' takes classes: give `classes`"), "");
  EXPECT_EQ(field_blamed(""), "");
}

TEST(FieldNames, ErrorsAreToldInThem) {
  const Refusal width = refusal_of(Error(ErrorCode::usage, "`width` 9: expected a multiple of 16"));
  EXPECT_EQ(width.status(), 400);
  EXPECT_EQ(width.param(), "width");
  EXPECT_STREQ(width.what(), "width 9: expected a multiple of 16");
  const Refusal memory = refusal_of(Error(ErrorCode::memory, "it: `memory_budget` 1MB"));
  EXPECT_EQ(memory.status(), 503);
  EXPECT_EQ(memory.type() + memory.param(), "memory");
  EXPECT_EQ(refusal_of(Error(ErrorCode::model, "x")).status(), 500);
  const auto told = [](ErrorCode code, const char* text) {
    return std::string(refusal_of(Error(code, text)).what());
  };
  EXPECT_EQ(told(ErrorCode::model, "the folder '/srv/m/vae' does not exist"),
            "the folder 'vae' does not exist");
  EXPECT_EQ(told(ErrorCode::usage, "`classes` '/a/b': no"), "classes '/a/b': no");
}

TEST(FieldNames, AreOptionsOnTheCommandLine) {
  EXPECT_EQ(in_options("`top_k` 0 of '`top_k`': use `noise`"), "--top-k 0 of '`top_k`': use --rng");
  EXPECT_EQ(in_options("`classes` 'x', `loras` y"), "--class 'x', --lora y");
}

TEST(FieldNames, AFormHasItsOwn) {
  const FieldNames images{{"count", "n"}, {"width", "size"}};
  EXPECT_EQ(in_fields("a smaller `width` or `count`", images), "a smaller size or n");
  EXPECT_EQ(field_blamed("`count` 65: too many", images), "n");
  EXPECT_EQ(refusal_of(Error(ErrorCode::usage, "`width` 9: no"), images).param(), "size");
  const Refusal told = in_form(wrong("count", "count: 65 images are asked for"), images);
  EXPECT_EQ(told.param(), "n");
  EXPECT_STREQ(told.what(), "n: 65 images are asked for");
  EXPECT_STREQ(in_form(wrong("count", "counts differ"), images).what(), "counts differ");
  EXPECT_EQ(in_form(wrong("steps", "steps: no"), images).param(), "steps");
}

}  // namespace
}  // namespace tessera::server
