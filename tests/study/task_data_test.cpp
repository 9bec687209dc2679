#include "study/task_data.h"

#include "whole/text_model.h"

namespace tessera::study {
namespace {

TEST(TaskData, GivesEveryPromptTheSameCanvas) {
  const golden::TextModel folder("llada2");
  folder.write("tasks.jsonl",
               "{\"prompt\": \"a\", \"answer\": \"1234567\"}\n"
               "{\"prompt\": \"b\", \"answer\": \"12345678\"}\n"
               "{\"prompt\": \"c\", \"answer\": \"1\"}\n");
  const TaskData all = read_task_data(folder.path(), {}, 0, 0);
  EXPECT_EQ(all.experts, 16);
  EXPECT_EQ(all.top_k, 4);
  EXPECT_EQ(all.examples.size(), 3u);
  EXPECT_EQ(all.max_tokens, 128);
  folder.write("generation_config.json", "{\"max_new_tokens\": 24}");
  EXPECT_EQ(read_task_data(folder.path(), {}, 2, 0).max_tokens, 24);
  EXPECT_EQ(read_task_data(folder.path(), {}, 2, 0).examples.size(), 2u);
  EXPECT_EQ(read_task_data(folder.path(), {}, 0, 20).max_tokens, 20);
}

TEST(TaskData, MayBeTextThatWasRead) {
  const golden::TextModel folder("llada2");
  const TaskSource given{"standard input", "{\"prompt\": \"a\", \"answer\": \"1\"}\n"};
  const TaskData data = read_task_data(folder.path(), given, 0, 0);
  ASSERT_EQ(data.examples.size(), 1u);
  EXPECT_EQ(data.examples[0].prompt, "a");
  const auto error_of = [&](const char* text) {
    return golden::error_of([&] { read_task_data(folder.path(), {"standard input", text}, 0, 0); });
  };
  EXPECT_EQ(error_of(""), "standard input: there is no example in it");
  EXPECT_EQ(error_of("{\"prompt\": \"a\", \"answer\": \"1\"}\n{"),
            "standard input: line 2 is not JSON");
}

}  // namespace
}  // namespace tessera::study
