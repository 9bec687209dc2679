#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::golden {

/// A golden language model with a simple tokenizer: id = ASCII - 32, mask 95, end 92 ("|").
class TextModel {
 public:
  explicit TextModel(const std::string& name) {
    namespace fs = std::filesystem;
    for (const auto& file :
         fs::directory_iterator(std::string(TESSERA_TEST_DATA) + "/moe/" + name + "/model"))
      fs::copy_file(file.path(), scratch_ / file.path().filename().string());
    base::Json vocab;
    for (int c = 33; c < 127; ++c) vocab[std::string(1, char(c))] = c - 32;
    vocab["\xc4\xa0"] = 0;  // the space
    write(
        "tokenizer.json",
        base::Json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", base::Json::array()}}},
                   {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                   {"added_tokens", {{{"id", 95}, {"content", "<|mask|>"}, {"special", true}}}}}
            .dump());
    write("tokenizer_config.json",
          base::Json{{"chat_template",
                      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor "
                      "%}{% if add_generation_prompt %}a:{% endif %}"}}
              .dump());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_ / name, std::ios::binary) << text;
  }
  std::string path(const std::string& name = "") const { return scratch_ / name; }

 private:
  Scratch scratch_;
};

/// The message of an Error thrown by `f`; "": no error.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace tessera::golden
