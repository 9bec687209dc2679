#include "jinja/chat_prompt.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::jinja {
namespace {

const std::string kData = TESSERA_TEST_DATA "/diffusers/";

TEST(ChatPrompt, IsTheUsersTurnBeforeTheAnswer) {
  const std::string folder = kData + "z_image_turbo/model/tokenizer";
  EXPECT_EQ(ChatPrompt(folder, true).text("a cat"),
            "<|im_start|>user\na cat<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatPrompt, AnAnswerWithoutThoughtBeginsWithAnEmptyOne) {
  const std::string folder = kData + "flux2_klein_base/model/tokenizer";
  EXPECT_EQ(ChatPrompt(folder, false).text(""),
            "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(ChatPrompt, NamesAFolderWithoutTemplate) {
  try {
    ChatPrompt(kData + "flux_dev/model/tokenizer", true);
    FAIL() << "a folder without template was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("chat_template.jinja"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::jinja
