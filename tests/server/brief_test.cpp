#include "server/brief.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(Brief, ShortTextsStay) {
  const Json job = {{"id", "x"}, {"request", {{"prompt", "a snail"}, {"steps", 4}}}, {"text", "y"}};
  Json with_report = job;
  with_report["report"] = {{"steps", 4}};
  EXPECT_EQ(text_of(brief_of(with_report)), text_of(job));
}

TEST(Brief, LongOnesAreCutAtACharacter) {
  std::string text = "x";
  while (text.size() < 5000) text += "é";
  const Json brief = brief_of({{"request", {{"prompt", text}}}, {"text", "y"}});
  const auto begin = brief["request"]["prompt"].get<std::string>();
  EXPECT_LT(begin.size(), 600U);
  EXPECT_TRUE(begin.ends_with("é…")) << begin;
  EXPECT_EQ(brief["shortened"], Json::array({"request"}));
  EXPECT_EQ(brief["text"], "y");
}

TEST(Brief, ManyAreCutToo) {
  Json messages = Json::array(), texts = Json::array(), schema = Json::object();
  for (int i = 0; i < 5000; ++i) {
    messages.push_back({{"role", "user"}, {"content", "hello"}});
    texts.push_back(std::string(100, 'x'));
    schema["name" + std::to_string(i)] = {};
  }
  schema = {{std::string(60000, 'n'), schema}, {"a", schema}};
  for (const Json& request :
       {Json{{"messages", messages}}, Json{{"stop", texts}}, Json{{"tools", schema}}}) {
    const Json brief = brief_of({{"request", request}, {"text", texts}});
    EXPECT_LT(text_of(brief).size(), 16384U);
    EXPECT_EQ(brief["shortened"], Json::array({"request", "text"}));
  }
}

}  // namespace
}  // namespace tessera::server
