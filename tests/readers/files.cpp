#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/config_reader.h"
#include "base/json.h"
#include "base/member.h"
#include "jinja/chat.h"
#include "load/name_list.h"
#include "load/safetensors_header.h"
#include "load/shard_index.h"
#include "readers/inputs.h"
#include "tokenizer/formats.h"
#include "tokenizer/spiece.h"
#include "tokenizer/wordpiece.h"

// Files of a model, and chats.
namespace tessera::readers {
namespace {

using base::Json;

Reader json(const std::string& name, const std::string& first, const std::string& part,
            const std::string& last) {
  return {"JSON: " + name, [=](size_t bytes) {
            return
                [text = first + repeated(part, bytes) + last] { base::parse_json(text, "test"); };
          }};
}

// A header of `bytes` bytes of entries, each made by one(number).
Reader header(const std::string& name, const std::function<std::string(size_t)>& one) {
  return {"a header of " + name, [=](size_t bytes) {
            std::string text = "{";
            for (size_t i = 0; text.size() < bytes; ++i) text += (i == 0 ? "" : ",") + one(i);
            text += "}";
            std::string image(8, '\0');
            for (size_t i = 0; i < 8; ++i) image[i] = static_cast<char>(text.size() >> (8 * i));
            image += text;
            return [=] {
              load::parse_safetensors_header(image, static_cast<int64_t>(image.size()), "test");
            };
          }};
}

Reader names(const std::string& name, const std::function<std::string(size_t, size_t)>& one) {
  return {"a message about " + name, [=](size_t bytes) {
            std::vector<load::NamedItem> items;
            const size_t count = bytes / 20 + 1;
            for (size_t i = 0; i < count; ++i) items.push_back({one(i, count), ""});
            return [=] { load::listed_names(items); };
          }};
}

// A tokenizer.json with a part of growing size.
Reader tokenizer_json(const std::string& name, const std::function<Json(size_t)>& make) {
  return {"a tokenizer.json with " + name, [=](size_t bytes) {
            const auto made = std::make_shared<Json>(make(bytes));
            return [=] { tokenizer::parts_of_json(*made, "test"); };
          }};
}

Json with_vocabulary(const std::function<std::string(size_t)>& token, size_t bytes) {
  Json vocabulary = {{"[UNK]", 0}};
  size_t made = 0;
  for (size_t i = 1; made < bytes; ++i) {
    const std::string one = token(i);
    vocabulary[one] = i;
    made += one.size() + 6;
  }
  return {{"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}};
}

std::string varint(size_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

void add_tokenizers(std::vector<Reader>& all) {
  all.push_back(tokenizer_json("many tokens", [](size_t bytes) {
    return with_vocabulary([](size_t i) { return std::to_string(i * 7919); }, bytes);
  }));
  all.push_back(tokenizer_json("long tokens", [](size_t bytes) {
    return with_vocabulary([](size_t i) { return std::string(490, 'a') + std::to_string(i); },
                           bytes);
  }));
  all.push_back(tokenizer_json("a long template", [](size_t bytes) {
    Json json = with_vocabulary([](size_t i) { return std::to_string(i); }, 100);
    Json single = Json::array(), special = Json::object();
    for (size_t i = 0; i < bytes / 100; ++i) {
      single.push_back({{"SpecialToken", {{"id", std::to_string(i)}}}});
      special[std::to_string(i)] = {{"ids", {1}}};
    }
    json["post_processor"] = {
        {"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
    return json;
  }));
  all.push_back(tokenizer_json("nested sequences", [](size_t bytes) {
    Json json = with_vocabulary([](size_t i) { return std::to_string(i); }, 100);
    Json inner = {
        {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(bytes, 'a')}};
    for (int i = 0; i < 40; ++i)
      inner = {{"type", "Sequence"}, {"normalizers", Json::array({inner})}};
    json["normalizer"] = inner;
    return json;
  }));
  all.push_back({"a vocab.txt", [](size_t bytes) {
                   const auto path = std::filesystem::temp_directory_path() /
                                     fmt::format("tessera-readers-{}.txt", bytes);
                   std::ofstream file(path);
                   file << "[UNK]\n[CLS]\n[SEP]\n";
                   for (size_t i = 0; i < bytes / 8; ++i) file << i << "\n";
                   return
                       [path] { tokenizer::parts_of_bert(path.string(), Json::object(), "test"); };
                 }});
  all.push_back({"a spiece.model", [](size_t bytes) {
                   std::string model;
                   for (size_t i = 0; model.size() < bytes; ++i) {
                     const std::string text = std::to_string(i);
                     const std::string piece = "\x0a" + varint(text.size()) + text;
                     model += "\x0a" + varint(piece.size()) + piece;
                   }
                   return [=] { tokenizer::parse_spiece(model, "test"); };
                 }});
}

void add_messages(std::vector<Reader>& all) {
  const std::vector<Reader> more = {
      names("numbers without order",
            [](size_t i, size_t count) { return fmt::format("{}.{}.x", i, i * 7919 % count); }),
      names("numbers of one axis", [](size_t i, size_t) { return fmt::format("a.{}.x", 3 * i); }),
      names("names",
            [](size_t i, size_t) { return std::string(i % 300, 'x') + std::to_string(i); }),
      {"a message about names of many numbers",
       [](size_t bytes) {
         const std::vector<load::NamedItem> items = {{repeated("0.", bytes / 2) + "a", ""},
                                                     {repeated("1.", bytes / 2) + "a", ""},
                                                     {repeated("2.", bytes / 2) + "b", ""}};
         return [=] { load::listed_names(items); };
       }},
      {"a value of a wrong kind",
       [](size_t bytes) {
         const auto list = std::make_shared<Json>(Json::array());
         for (size_t i = 0; i < bytes / 4; ++i) list->push_back(i % 10);
         return [=] { (void)base::ConfigReader::shown(*list).str(); };
       }},
      {"a shard index",
       [](size_t bytes) {
         const auto index = std::make_shared<Json>();
         for (size_t i = 0; i < bytes / 30; ++i)
           (*index)["weight_map"][std::to_string(i)] = fmt::format("{}.safetensors", i);
         return [=] { load::parse_shard_index(*index, "test"); };
       }},
  };
  all.insert(all.end(), more.begin(), more.end());
}

void add_chats(std::vector<Reader>& all) {
  const std::vector<Reader> more = {
      {"a chat of many messages",
       [](size_t bytes) {
         const std::string text = R"([{"role":"user","content":"a"})" +
                                  repeated(R"(,{"role":"user","content":"a"})", bytes) + "]";
         return [=] { jinja::chat_values(text); };
       }},
      {"a chat of many keys",
       [](size_t bytes) {
         std::string text = R"({"messages":[{"role":"user","content":"a"}])";
         for (size_t i = 0; text.size() < bytes; ++i) text += fmt::format(",\"{}\":0", i);
         return [text = text + "}"] { jinja::chat_values(text); };
       }},
  };
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

std::vector<Reader> file_readers() {
  std::vector<Reader> all = {
      json("empty lists", "[0", ",[]", "]"),
      json("objects", "[0", ",{\"\":0}", "]"),
      json("a long text", "\"", "a", "\""),
      json("escapes", "\"", "\\u00e9", "\""),
      json("a long number", "1", "1", ""),
      json("a long fraction", "0.", "1", ""),
      json("words of Python", "[NaN", ",NaN,Infinity", "]"),
      json("what is cut short", "[", "\"a\",", ""),
      json("levels", "", "[", ""),
      header("tensors",
             [](size_t i) {
               return fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i);
             }),
      header("notes", [](size_t i) { return fmt::format(R"("__metadata__{}":{{}})", i); }),
      header("a long name",
             [](size_t i) {
               return fmt::format(R"("{}{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                  std::string(5000, 'a'), i);
             }),
  };
  add_messages(all);
  add_chats(all);
  add_tokenizers(all);
  return all;
}

}  // namespace tessera::readers
