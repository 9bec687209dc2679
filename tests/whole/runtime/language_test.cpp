#include "runtime/language.h"

#include "whole/text_model.h"

namespace tessera::pipeline {
namespace {

runtime::Language open(const golden::TextModel& folder) {
  return runtime::Language(load::open_folder(folder.path()).component("model"));
}

TEST(Language, PutsPromptsIntoTheTemplateUnlessRaw) {
  const golden::TextModel folder("llada_moe");
  const runtime::Language language = open(folder);
  EXPECT_EQ(language.prompt("Hi", true), (std::vector<int32_t>{'H' - 32, 'i' - 32}));
  EXPECT_EQ(language.prompt("Hi", false), language.prompt("u:Hi;a:", true));
  EXPECT_EQ(
      language.chat(R"([{"role": "system", "content": "x"}, {"role": "user", "content": "y"}])"),
      language.prompt("s:x;u:y;a:", true));
  EXPECT_EQ(language.chat(R"({"messages": [{"role": "user", "content": "y"}]})"),
            language.prompt("y", false));
}

TEST(Language, TheTemplateMayBeAFile) {
  const golden::TextModel folder("llada_moe");
  folder.write("chat_template.jinja", "<{{ messages[0].content }}>");
  EXPECT_EQ(open(folder).prompt("y", false), open(folder).prompt("<y>", true));
}

TEST(Language, ToolsReachTheTemplateAndWhatItDoesNotReadIsSaid) {
  const golden::TextModel folder("llada_moe");
  folder.write("chat_template.jinja",
               "{{ tools is none }}{% for t in tools or [] %}{{ t.name }}{% endfor %}"
               "{{ bos_token is defined }}{{ messages[0].content }}");
  const std::string turn = R"("messages": [{"role": "user", "content": null}])";
  EXPECT_EQ(open(folder).chat("{" + turn + "}"), open(folder).prompt("TrueFalseNone", true));
  EXPECT_EQ(open(folder).chat(R"({"tools": [{"name": "f"}], )" + turn + "}"),
            open(folder).prompt("FalsefFalseNone", true));
  EXPECT_NE(golden::error_of([&] {
              open(folder).chat(R"({"tool": [1], )" + turn + "}");
            }).find("'tool' is nothing that the chat template"),
            std::string::npos);
}

TEST(Language, TheTokenizerSaysTheMaskIfTheConfigDoesNot) {
  const golden::TextModel folder("llada_moe");
  base::Json config = base::read_json(folder.path("config.json"));
  config.erase("mask_token_id");
  folder.write("config.json", config.dump());
  EXPECT_EQ(open(folder).special().mask, 95);
  std::filesystem::remove(folder.path("tokenizer.json"));
  EXPECT_NE(golden::error_of([&] { open(folder).special(); }).find("which token is the mask"),
            std::string::npos);
}

TEST(Language, SaysWhatOfTheGenerationConfigNothingReads) {
  const golden::TextModel folder("llada2");
  EXPECT_EQ(open(folder).check(nn::DType::bf16), "");
  folder.write("generation_config.json", R"({"max_post_steps": 3})");
  const std::string said = open(folder).check(nn::DType::bf16);
  EXPECT_NE(said.find("'max_post_steps' has no effect without 'editing_threshold'"),
            std::string::npos)
      << said;
  folder.write("generation_config.json", R"({"max_post_steps": 3, "editing_threshold": 0.5})");
  EXPECT_EQ(open(folder).check(nn::DType::bf16), "");
}

TEST(Language, GenerationConfigChangesWhatAFolderThatEditsLengthsDoes) {
  const golden::TextModel folder("llada22_block_routing");
  const auto decode = [&](const char* generation, const char* ids) {
    base::Json config = base::read_json(folder.path("config.json"));
    config.update(base::Json::parse(ids));
    folder.write("config.json", config.dump());
    folder.write("generation_config.json", generation);
    return open(folder).spec().decode;
  };
  const char* const edits = R"({"delete_token_id": 12, "split_token_id": 77})";
  EXPECT_EQ(decode("{}", edits), "edit:0.5,0");
  EXPECT_EQ(decode(R"({"editing_threshold": 0.25})", edits), "edit:0.5,0.25,16");
  EXPECT_EQ(decode(R"({"threshold": 0.75})", edits), "edit:0.75,0,16");
  EXPECT_EQ(decode(R"({"max_post_steps": 0})", edits), "edit:0.5,0,0");
  EXPECT_EQ(open(folder).check(nn::DType::bf16), "");
  decode(R"({"eos_token_id": [76, 12]})", edits);
  EXPECT_NE(golden::error_of([&] { open(folder).special(); }).find("token 12 ends a text"),
            std::string::npos);
  const char* const none = R"({"delete_token_id": null, "split_token_id": null})";
  EXPECT_EQ(decode(R"({"editing_threshold": 0.25})", none), "edit:0.7,0.25,16");
  EXPECT_EQ(decode(R"({"threshold": 0.75})", none), "threshold:0.9");
}

TEST(Language, GenerationConfigSaysTheEndsBeforeTheConfig) {
  const golden::TextModel folder("llada_moe");
  EXPECT_EQ(open(folder).special().ends, (std::vector<int32_t>{92}));
  folder.write("generation_config.json", R"({"max_new_tokens": 7, "eos_token_id": [91, 3]})");
  EXPECT_EQ(open(folder).special().ends, (std::vector<int32_t>{91, 3}));
  EXPECT_EQ(open(folder).max_tokens(), 7);
  folder.write("generation_config.json", R"({"eos_token_id": 96})");
  const std::string said = golden::error_of([&] { open(folder); });
  EXPECT_NE(said.find("generation_config.json"), std::string::npos);
  EXPECT_NE(said.find("'eos_token_id' is 96"), std::string::npos);
}

TEST(Language, MalformedChatsAreOneLine) {
  const golden::TextModel folder("llada_moe");
  const runtime::Language language = open(folder);
  for (const char* chat : {"", "{", "[]", "{}", "[1]", R"([{"role": "user"}])", "7",
                           R"([{"role": "user", "content": 7}])", "[{\n"}) {
    const std::string message = golden::error_of([&] { language.chat(chat); });
    EXPECT_NE(message, "") << chat;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  folder.write("tokenizer_config.json", "{}");
  EXPECT_NE(golden::error_of([&] { open(folder).chat("[]"); }).find("no chat template"),
            std::string::npos);
}

TEST(Language, AFolderWithoutTokenizerTakesIds) {
  const golden::TextModel folder("llada_moe");
  std::filesystem::remove(folder.path("tokenizer.json"));
  const runtime::Language language = open(folder);
  EXPECT_FALSE(language.has_tokenizer());
  EXPECT_NE(golden::error_of([&] { language.prompt("x", true); }).find("`prompt_ids`"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::pipeline
