#include "engine/task_data.h"

#include "engine/text_model.h"

namespace tessera::engine {
namespace {

TEST(TaskData, GivesEachAnswerTheBlocksThatHoldIt) {
  const golden::TextModel folder("llada2");  // blocks of 8; a token a character
  folder.write("tasks.jsonl",
               "{\"prompt\": \"a\", \"answer\": \"1234567\"}\n"
               "{\"prompt\": \"b\", \"answer\": \"12345678\"}\n"  // the end needs one more
               "{\"prompt\": \"c\", \"answer\": \"1\"}\n");
  const TaskData all = read_task_data(folder.path(), "", 0, 0, 0);
  EXPECT_EQ(all.experts, 16);
  EXPECT_EQ(all.top_k, 4);
  EXPECT_EQ(all.lengths, (std::map<int64_t, std::vector<size_t>>{{8, {0, 2}}, {16, {1}}}));
  const TaskData some = read_task_data(folder.path(), "", 2, 0, 4);
  EXPECT_EQ(some.lengths, (std::map<int64_t, std::vector<size_t>>{{8, {0}}, {12, {1}}}));
  const TaskData given = read_task_data(folder.path(), "", 0, 20, 0);
  EXPECT_EQ(given.lengths, (std::map<int64_t, std::vector<size_t>>{{20, {0, 1, 2}}}));
}

}  // namespace
}  // namespace tessera::engine
