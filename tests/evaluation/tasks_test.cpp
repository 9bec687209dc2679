#include "evaluation/tasks.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

TEST(Tasks, ReadsJsonLines) {
  const auto all = read_tasks(
      "{\"task\": \"add\", \"prompt\": \"1+1=\", \"answer\": \"2\"}\n\n"
      "{\"question\": \"How many?\", \"answer\": 7}",
      "x");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].task, "add");
  EXPECT_EQ(all[0].prompt, "1+1=");
  EXPECT_EQ(all[1].task, "all");
  EXPECT_EQ(all[1].prompt, "How many?");
  EXPECT_EQ(all[1].answer, "7");
}

TEST(Tasks, NamesTheLineThatDoesNotFit) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      read_tasks(text, "file");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error_of("{\"prompt\": \"a\", \"answer\": \"b\"}\n{").find("file: line 2 is not JSON"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"prompt": "", "answer": "b"})").find("line 1: 'prompt' is empty"),
            std::string::npos);
  EXPECT_NE(error_of("{\"prompt\": \"a\"}").find("line 1 has no text as 'answer'"),
            std::string::npos);
  EXPECT_NE(error_of("[1]").find("no JSON object"), std::string::npos);
  EXPECT_NE(error_of("\n\n").find("no example"), std::string::npos);
}

TEST(Tasks, ExactMatchLeavesWhiteSpaceAtTheEndsOut) {
  EXPECT_TRUE(exact_match(" 12 03\n", "12 03"));
  EXPECT_FALSE(exact_match("12  03", "12 03"));
  EXPECT_FALSE(exact_match("", "a"));
}

TEST(Tasks, NumberMatchComparesTheLastNumbers) {
  EXPECT_TRUE(number_match("so it is $1200.00.", "9 + 3\n#### 1,200"));
  EXPECT_TRUE(number_match("-5", "x = -5"));
  EXPECT_FALSE(number_match("-5", "5"));
  EXPECT_FALSE(number_match("12 and 13", "12"));
  EXPECT_FALSE(number_match("none", "12"));
  EXPECT_FALSE(number_match("12", "none"));
}

}  // namespace
}  // namespace tessera::evaluation
