#include "jinja/chat_prompt.h"

#include "base/fail.h"
#include "base/input_file.h"
#include "base/is_there.h"
#include "base/json.h"

namespace tessera::jinja {
namespace {

std::string template_in(const std::string& folder) {
  const std::string path = folder + "/chat_template.jinja";
  if (base::is_there(path)) return base::read_file(path, base::kLargestText);
  const std::string config_file = folder + "/tokenizer_config.json";
  if (base::is_there(config_file)) {
    const base::Json config = base::read_json(config_file);
    const auto it = config.is_object() ? config.find("chat_template") : config.end();
    if (it != config.end() && it->is_string()) return it->get<std::string>();
  }
  fail(ErrorCode::model,
       "{}: no chat template, which this model puts around a prompt; expected chat_template.jinja, "
       "or 'chat_template' in tokenizer_config.json",
       folder);
}

}  // namespace

ChatPrompt::ChatPrompt(const std::string& folder, bool thinks)
    : template_(
          std::make_shared<const ChatTemplate>(template_in(folder), folder + ": chat template")),
      thinks_(thinks) {}

std::string ChatPrompt::text(const std::string& prompt) const {
  ValueDict turn, values;
  turn.set("role", "user");
  turn.set("content", prompt);
  values.set("messages", Value::list({std::move(turn)}));
  for (const char* missing : {"tools", "documents"}) values.set(missing, nullptr);
  values.set("add_generation_prompt", true);
  values.set("enable_thinking", thinks_);
  return template_->render(values);
}

}  // namespace tessera::jinja
