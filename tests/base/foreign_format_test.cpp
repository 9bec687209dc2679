#include "base/foreign_format.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::base {
namespace {

using namespace std::string_literals;

TEST(ForeignFormat, IsNamedWithWhatToDo) {
  const struct {
    std::string begin;
    const char *kind, *remedy;
  } cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 581368\n",
       "a Git LFS pointer", "git lfs pull"},
      {"# xet version 0\nfilesize = 3\n", "a Xet pointer", "hf download"},
      {"<!DOCTYPE html><html>", "an HTML page", "hf download"},
      {"\xef\xbb\xbf\r\n  <HTML lang=en>", "an HTML page", "/resolve/"},
      {"PK\3\4\0\0\10\10"s, "a PyTorch pickle", "safetensors"},
      {"\x80\2\x8a\nl\xfc\x9c\x46\xf9"s, "a PyTorch pickle", "safetensors"},
      {"\x80\5\x95"s, "a PyTorch pickle", "safetensors"},
      {"GGUF\3\0\0\0"s, "a GGUF file", "safetensors"},
      {"\x1f\x8b\10"s, "an archive", "unpack"},
      {std::string(600, '\0'), "full of zeros", "again"},
  };
  for (const auto& c : cases) {
    const std::string says = foreign_format(c.begin);
    EXPECT_NE(says.find(c.kind), std::string::npos) << says;
    EXPECT_NE(says.find(c.remedy), std::string::npos) << says;
  }
}

TEST(ForeignFormat, OthersPass) {
  for (const std::string& begin :
       {""s, "{\"a\": 1}"s, "version 2"s, "<|endoftext|>"s, "\n\n"s, "#version: 0.2\n"s,
        "\x50\0\0\0\0\0\0\0{"s, "\0\0\0\0"s, "<pad>\n<s>\n"s})
    EXPECT_EQ(foreign_format(begin), "") << begin;
}

TEST(ForeignFormat, IsRefusedByItsPath) {
  try {
    refuse_foreign("<html>", "a/vocab.txt");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("'a/vocab.txt' is an HTML page"), std::string::npos);
  }
  EXPECT_NO_THROW(refuse_foreign("{}", "a.json"));
}

}  // namespace
}  // namespace tessera::base
