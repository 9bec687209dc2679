#include "models/token_config.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(TokenConfig, NullIsMissing) {
  const base::Json json{{"a", nullptr}, {"b", 3}};
  const TokenConfig read(json, "c");
  EXPECT_FALSE(read.has("a"));
  EXPECT_EQ(read.integer("a", 7, 0, 9), 7);
  EXPECT_EQ(read.integer("b", 0, 9), 3);
  EXPECT_THROW(read.integer("a", 0, 9), Error);
  EXPECT_THROW(read.integer("b", 4, 9), Error);
}

TEST(TokenConfig, IdsAreOneOrAList) {
  const base::Json json{{"one", 3}, {"two", {1, 2}}, {"far", 9}, {"odd", "x"}};
  const TokenConfig read(json, "c");
  EXPECT_EQ(read.ids("one", 5), (std::vector<int32_t>{3}));
  EXPECT_EQ(read.ids("two", 5), (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(read.ids("none", 5).empty());
  EXPECT_THROW(read.ids("far", 5), Error);
  EXPECT_THROW(read.ids("odd", 5), Error);
}

TEST(TokenConfig, FlagsAreOneForAllOrOneEach) {
  const base::Json json{{"all", 1}, {"each", {1, 0}}};
  const TokenConfig read(json, "c");
  EXPECT_EQ(read.flags("all", 3), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(read.flags("each", 2), (std::vector<bool>{true, false}));
  EXPECT_THROW(read.flags("each", 3), Error);
}

TEST(TokenConfig, ANullFlagIsFalseAsInPython) {
  const base::Json json{{"a", nullptr}};
  EXPECT_FALSE(TokenConfig(json, "c").truth("a", true));
  EXPECT_TRUE(TokenConfig(json, "c").truth("b", true));
}

TEST(TokenConfig, WhatWasNotReadIsInertOrRefused) {
  const base::Json json{{"a", 1}, {"b", 2}, {"c", 3}, {"use_cache", true}, {"d", nullptr}};
  constexpr const char* kInert[] = {"b"};
  const auto said = [&](const std::vector<const char*>& values) {
    const TokenConfig read(json, "x");
    read.integer("a", 0, 9);
    const GuardedKey guarded[] = {{"c", values, "what c asks for"}};
    try {
      read.check_rest(kInert, guarded);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said({"0", "3"}), "");
  EXPECT_EQ(said({"0"}), "x: 'c' is 3: what c asks for is not supported; supported is 0");
  try {
    TokenConfig(json, "x").check_rest({}, {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("does not know the key 'a' (1)"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::models
