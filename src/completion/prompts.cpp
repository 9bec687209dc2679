#include "completion/prompts.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::completion {

std::vector<sample::TokenPrompt> prompts_of(const CompleteRequest& q,
                                            const runtime::Language& language,
                                            const sample::DecodingPolicy& policy) {
  const models::TokenSpec& spec = language.spec();
  std::vector<sample::TokenPrompt> prompts;
  require(q.max_tokens >= 0, ErrorCode::usage,
          "`max_tokens` {}: must be at least 1, and fit the context of {} together with the prompt",
          q.max_tokens, spec.context);
  const int64_t behind = q.max_tokens == 0 ? language.max_tokens() : q.max_tokens;
  for (const std::string& text : q.prompts)
    require(!text.empty(), ErrorCode::usage,
            "`prompt` '': an empty prompt asks for nothing; give the text that is to be completed");
  for (const std::string& text : q.prompts)
    prompts.push_back({language.prompt(text, q.raw), behind});
  for (const auto& ids : q.prompt_ids) prompts.push_back({ids, behind});
  if (!q.chat.empty()) prompts.push_back({language.chat(q.chat), behind});
  require(!prompts.empty(), ErrorCode::usage,
          "there is no prompt; give `prompt`, `prompt_ids` or `chat`");
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (int32_t id : prompts[i].ids)
      require(id >= 0 && id < spec.vocabulary, ErrorCode::usage,
              "prompt {}: token id {} is outside the vocabulary of {}", i, id, spec.vocabulary);
    const auto length = static_cast<int64_t>(prompts[i].ids.size());
    require(length > 0, ErrorCode::usage,
            "prompt {} holds no token and asks for nothing; give what is to be completed", i);
    const bool chat = !q.chat.empty() && i + 1 == prompts.size();
    require(behind <= spec.context && length + behind <= spec.context, ErrorCode::usage,
            "{} of {} tokens and {} behind it do not fit the context of {}; {} or `max_tokens`",
            chat ? "a chat" : fmt::format("prompt {}", i), length, behind, spec.context,
            chat ? "leave out earlier turns" : "shorten the prompt");
  }
  require(q.draws.empty() || (prompts.size() == 1 && q.n == 1), ErrorCode::usage,
          "draws are for one answer; give one prompt, and no further answers");
  for (const auto& prompt : prompts)
    for (const int32_t image : spec.images)
      require(std::ranges::count(prompt.ids, image) == 0, ErrorCode::usage,
              "a prompt holds the image token {}: images are not read by this build", image);
  require(policy.block <= spec.context, ErrorCode::usage,
          "a block of {} tokens does not fit the context of {}", policy.block, spec.context);
  std::vector<sample::TokenPrompt> answers;
  for (const auto& prompt : prompts)
    for (int i = 0; i < q.n; ++i) {
      answers.push_back(prompt);
      answers.back().answer = static_cast<uint64_t>(i);
    }
  return answers;
}

}  // namespace tessera::completion
