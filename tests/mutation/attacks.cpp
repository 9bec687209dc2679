#include "mutation/attacks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tessera::mutation {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

int64_t below(Random& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(end, 1)));
}

template <class List>
const auto& one_of(const List& list, Random& random) {
  return *(std::begin(list) + below(random, static_cast<int64_t>(std::size(list))));
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// In place of a link to the whole file.
void write(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Chooses bytes that readers interpret: for weights mostly the header.
size_t place_in(const std::string& bytes, bool weights, Random& random) {
  uint64_t header = bytes.size();
  if (weights && bytes.size() >= 8 && random() % 4 != 0) {
    std::memcpy(&header, bytes.data(), sizeof header);
    header = std::min<uint64_t>(header + 8, bytes.size());
  }
  return static_cast<size_t>(below(random, static_cast<int64_t>(header)));
}

std::string change_bytes(const fs::path& path, Random& random) {
  std::string bytes = read(path);
  if (bytes.empty()) return "nothing: it is empty";
  const bool weights = path.extension() == ".safetensors";
  const size_t at = place_in(bytes, weights, random);
  const auto length = static_cast<size_t>(1 + below(random, 40));
  std::string done;
  switch (below(random, 4)) {
    case 0: {
      const int64_t count = 1 + below(random, 4);
      for (int64_t i = 0; i < count; ++i)
        bytes[place_in(bytes, weights, random)] = static_cast<char>(random());
      done = fmt::format("{} bytes changed", count);
      break;
    }
    case 1:
      bytes.resize(random() % 2 ? at : static_cast<size_t>(below(random, int64_t(bytes.size()))));
      done = fmt::format("cut at byte {}", bytes.size());
      break;
    case 2:
      bytes.insert(at, bytes.substr(at, length));
      done = fmt::format("{} bytes doubled at {}", length, at);
      break;
    default: bytes.erase(at, length); done = fmt::format("{} bytes left out at {}", length, at);
  }
  write(path, bytes);
  return done;
}

Json hostile_value(Random& random) {
  static const std::vector<Json> values = {0,
                                           -1,
                                           1,
                                           2,
                                           3,
                                           INT64_MAX,
                                           INT64_MIN,
                                           UINT64_MAX,
                                           1u << 31,
                                           1e300,
                                           -1e-300,
                                           0.5,
                                           -0.5,
                                           1 << 20,
                                           (1 << 20) + 1,
                                           true,
                                           false,
                                           "",
                                           "x",
                                           "..",
                                           "/",
                                           "\xf0\x9f\x98"
                                           "a",
                                           Json::array(),
                                           Json::object(),
                                           Json(),
                                           "none",
                                           "auto",
                                           1e9,
                                           -7,
                                           {1, 2, 3},
                                           {{"a", {{"b", 1}}}}};
  if (random() % 16 == 0) return std::string(static_cast<size_t>(below(random, 100000)), 'a');
  if (random() % 16 == 0)
    return Json(std::vector<int>(static_cast<size_t>(below(random, 5000)), 1));
  return one_of(values, random);
}

// A value somewhere inside; vocabularies and weight maps are gone into as well.
Json& somewhere(Json& json, Random& random, std::string& path) {
  if ((!json.is_object() && !json.is_array()) || json.empty() ||
      (!path.empty() && random() % 4 == 0))
    return json;
  auto at = json.begin();
  std::advance(at, below(random, static_cast<int64_t>(json.size())));
  path += "/" + (json.is_object() ? at.key().substr(0, 30) : std::to_string(at - json.begin()));
  return somewhere(*at, random, path);
}

std::string change_json(const fs::path& path, Random& random) {
  Json json = Json::parse(read(path), nullptr, false);
  if (json.is_discarded()) return change_bytes(path, random);
  std::string where;
  Json& value = somewhere(json, random, where);
  std::string done;
  if (random() % 3 == 0 && value.is_structured() && !value.empty()) {
    auto at = value.begin();
    std::advance(at, below(random, static_cast<int64_t>(value.size())));
    value.erase(at);
    done = "left an entry out of " + where;
  } else if (random() % 3 == 0 && value.is_number()) {
    value = value.get<double>() * (random() % 2 ? -1.0 : 1e6);
    done = where + " times much";
  } else {
    value = hostile_value(random);
    done = where + " = " + value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
  }
  write(path, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  return done;
}

// Replaces a file by something else than a file, or by an endless file.
std::string change_kind(const fs::path& path, Random& random) {
  fs::remove(path);
  switch (below(random, 5)) {
    case 0: return "gone";
    case 1: fs::create_directory(path); return "a folder";
    case 2: return mkfifo(path.c_str(), 0600) == 0 ? "a pipe" : "gone";
    case 3: fs::create_symlink("/dev/zero", path); return "/dev/zero";
    default: write(path, ""); return "empty";
  }
}

std::string attack_tokenizer(const fs::path& path, Random& random) {
  Json json = Json::parse(read(path), nullptr, false);
  if (!json.is_object()) return change_bytes(path, random);
  Json& added = json["added_tokens"];
  if (!added.is_array()) added = Json::array();
  const auto add = [&](const Json& id, const std::string& text) {
    added.push_back({{"id", id},
                     {"content", text},
                     {"special", random() % 2 == 0},
                     {"normalized", random() % 2 == 0},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"single_word", random() % 2 == 0}});
  };
  std::string done = "added tokens: ";
  switch (below(random, 6)) {
    case 0:  // its text exists already, its id is above all others
      add(200000 + below(random, 1000000),
          added.empty() ? "a" : added[0].value("content", std::string("a")));
      done += "a known text with an id above the vocabulary";
      break;
    case 1:
      add(hostile_value(random), "new");
      done += "a hostile id";
      break;
    case 2:
      for (int i = 0; i < 20000; ++i) add(i, "t" + std::to_string(i));
      done += "20,000";
      break;
    case 3:
      json["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "(a|aa)+$"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
      done = "a regular expression that takes for ever";
      break;
    case 4:
      json["model"]["merges"] = Json::array({"a b", "ab c", "a b", " ", "x"});
      done = "merges of nothing";
      break;
    default:
      for (auto& [text, id] : json["model"]["vocab"].items()) {
        id = 1 << 30;
        break;
      }
      done = "a vocabulary with a hole";
  }
  write(path, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  return done;
}

std::string attack_template(const fs::path& path, Random& random) {
  static const std::vector<std::pair<std::string, std::string>> links = {
      {"{{ 'x'", "|trim"},
      {"{{ 1", " or 1"},
      {"{{ 'a'", " + 'a'"},
      {"{{ messages", "[0]"},
      {"{{ ", "("},
      {"{{ ", "not "},
      {"{{ ", "["},
      {"{% if 1 %}", "{% if 1 %}"},
      {"", "{% for m in messages %}"},
      {"{{ 1 ", " if 1 else 1"},
      {"{{ a", ".b"},
      {"{{ ", "-"},
      {"{% set x = 'aaaaaaaa' %}", "{% set x = x + x %}"}};
  const auto& [begin, link] = one_of(links, random);
  std::string text = begin + repeated(link, static_cast<int>(1 + below(random, 50000)));
  if (random() % 2) text += " }}";
  if (path.extension() == ".jinja") {
    write(path, text);
  } else {
    Json json = Json::parse(read(path), nullptr, false);
    if (!json.is_object()) return change_bytes(path, random);
    json["chat_template"] = text;
    write(path, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return "a template of many '" + link + "'";
}

std::string attack_weights(const fs::path& path, Random& random) {
  std::string bytes = read(path);
  uint64_t length = 0;
  if (bytes.size() < 8) return change_bytes(path, random);
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - 8) return change_bytes(path, random);
  Json header = Json::parse(bytes.substr(8, length), nullptr, false);
  if (!header.is_object() || header.empty()) return change_bytes(path, random);
  std::string data = bytes.substr(8 + length), done;
  auto at = header.begin();
  std::advance(at, below(random, static_cast<int64_t>(header.size())));
  if (random() % 2 && at->is_object() && at->contains("data_offsets")) {
    const size_t begin = (*at)["data_offsets"][0], end = (*at)["data_offsets"][1];
    const unsigned char pattern = random() % 2 ? 0xff : 0x7f;  // NaN, or nearly the largest number
    for (size_t i = begin; i < std::min(end, data.size()); ++i)
      data[i] = static_cast<char>(pattern);
    done = at.key() + " filled with bytes " + std::to_string(pattern);
  } else {
    std::string where;
    Json& value = somewhere(*at, random, where);
    value = hostile_value(random);
    done = at.key() + where + " changed";
  }
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  length = text.size();
  bytes.assign(reinterpret_cast<const char*>(&length), 8);
  write(path, bytes + text + data);
  return done;
}

// Replaces numbers of the header, or fills blocks with large scales.
std::string attack_gguf(const fs::path& path, Random& random) {
  std::string bytes = read(path);
  if (bytes.size() < 64) return change_bytes(path, random);
  const uint64_t size = bytes.size();
  const uint64_t numbers[] = {0,    1,        31,       33,         UINT64_MAX,         1ull << 31,
                              size, size - 1, size * 2, 0xffffffff, 0x7fffffffffffffff, 1ull << 60};
  const size_t header = std::min<size_t>(bytes.size() - 8, 16 << 10);
  if (random() % 4 == 0) {
    const size_t at = static_cast<size_t>(below(random, int64_t(size)));
    const size_t count = std::min<size_t>(bytes.size() - at, 4096);
    const char filling = random() % 2 ? '\xff' : '\x7b';  // NaN, or a scale of about 6e4
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, filling);
    write(path, bytes);
    return fmt::format("{} bytes filled at {}", count, at);
  }
  const size_t width = random() % 2 ? 8 : 4,
               at = static_cast<size_t>(below(random, int64_t(header)));
  const uint64_t number = one_of(numbers, random);
  std::memcpy(bytes.data() + at, &number, width);
  write(path, bytes);
  return fmt::format("{} in {} bytes at {}", number, width, at);
}

}  // namespace

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file()) files.push_back(fs::relative(item.path(), folder).string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string attack(const fs::path& folder, const std::vector<std::string>& files, Random& random) {
  const std::string& name = one_of(files, random);
  const fs::path path = folder / name;
  const bool json = path.extension() == ".json";
  const int64_t kind = below(random, 10);
  std::string done;
  if (kind == 0) {
    done = change_kind(path, random);
  } else if (kind < 4) {
    done = change_bytes(path, random);
  } else if (path.extension() == ".safetensors") {
    done = attack_weights(path, random);
  } else if (path.extension() == ".gguf") {
    done = attack_gguf(path, random);
  } else if (path.filename() == "tokenizer.json" && kind < 7) {
    done = attack_tokenizer(path, random);
  } else if ((path.filename() == "tokenizer_config.json" && kind < 7) ||
             path.extension() == ".jinja") {
    done = attack_template(path, random);
  } else {
    done = json ? change_json(path, random) : change_bytes(path, random);
  }
  return name + ": " + done;
}

}  // namespace tessera::mutation
