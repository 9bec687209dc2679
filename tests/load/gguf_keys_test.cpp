#include "load/gguf_keys.h"

#include <gtest/gtest.h>

#include <limits>

#include "gguf_metadata.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

using base::Json;

std::string file_with(const ScratchFolder& scratch, const Metadata& keys) {
  GgufImage image;
  image.architecture("x");
  write_keys(keys, image);
  scratch.write("x.gguf", image.bytes());
  return scratch.path("x.gguf");
}

TEST(GgufKeys, ValuesOfAllTypes) {
  const ScratchFolder scratch;
  GgufImage image;
  image.architecture("x").raw_key("i8", 1, "\xff").raw_key("u16", 2, std::string("\x01\x02", 2));
  image.raw_key("u64", 10, std::string(8, '\xff')).raw_key("i64", 11, std::string(8, '\xff'));
  write_keys({{"x.n", 7},
              {"f", 0.4},
              {"yes", true},
              {"text", "b"},
              {"texts", {"", "\u2581a"}},
              {"truths", {true, false}},
              {"numbers", {3, 4}}},
             image);
  double real = 1e-6;
  image.raw_key("f64", 12, {reinterpret_cast<const char*>(&real), sizeof real});
  scratch.write("x.gguf", image.bytes());
  const GgufKeys keys(scratch.path("x.gguf"));
  EXPECT_EQ(keys.architecture(), "x");
  EXPECT_EQ(keys.whole(".n"), 7);
  EXPECT_EQ(keys.find("x.n"), 7);
  EXPECT_EQ(keys.find("f"), 0.4) << "as it was written before it became a float";
  EXPECT_EQ(keys.find("f64"), 1e-6);
  EXPECT_EQ(keys.find("i8"), -1);
  EXPECT_EQ(keys.find("u16"), 513);
  EXPECT_EQ(keys.find("u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(keys.find("i64"), -1);
  EXPECT_EQ(keys.find("yes"), true);
  EXPECT_EQ(keys.find("texts"), Json({"", "\u2581a"}));
  EXPECT_EQ(keys.find("truths"), Json({true, false}));
  EXPECT_EQ(keys.find("numbers"), Json({3, 4}));
  EXPECT_TRUE(keys.find("none").is_null());
  keys.check_rest();
}

TEST(GgufKeys, RefusalsNameTheKey) {
  const ScratchFolder scratch;
  const GgufKeys keys(file_with(scratch, {{"x.n", 1.5}, {"x.new", 1}, {"general.name", "a"}}));
  expect_says(model_error([&] { (void)keys.at(".m"); }), "the metadata lack 'x.m'");
  for (const std::string& error :
       {model_error([&] { (void)keys.whole(".n"); }), model_error([&] { keys.expect(".n", {0}); }),
        model_error([&] { keys.refuse_file("x.n"); })}) {
    expect_says(error, "x.gguf: ");
    expect_says(error, "x.n");
    expect_says(error, "`transformer`");
  }
  keys.expect(".none", {0});
  keys.expect(".new", {0, 1});
  (void)keys.find(".n");
  keys.check_rest();
  const GgufKeys other(file_with(scratch, {{"x.new", 1}}));
  expect_says(model_error([&] { other.check_rest(); }), "x.new");
}

TEST(GgufKeys, DamagedFilesAreRefused) {
  const ScratchFolder scratch;
  const auto error = [&](const char* name, uint32_t type, const std::string& value) {
    scratch.write("x.gguf", GgufImage().raw_key(name, type, value).bytes());
    return model_error([&] { GgufKeys(scratch.path("x.gguf")); });
  };
  std::string text;
  GgufImage::text(text, "\xff");
  expect_says(error("t", 8, text), "no UTF-8");
  expect_says(error("t", 13, ""), "unknown type 13");
  std::string many;
  GgufImage::number(many, uint32_t{0});
  GgufImage::number(many, uint64_t{1} << 24);
  expect_says(error("t", 9, many + std::string(1 << 24, '\0')), "expected at most 8388608");
  expect_says(error("t", 9, many), "the length of a list");
  expect_says(error("\xff", 4, std::string(4, '\0')), "no text in UTF-8");
}

}  // namespace
}  // namespace tessera::load
