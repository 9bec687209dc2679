#include "base/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/json_memory.h"
#include "base/printable.h"
#include "base/python_json.h"
#include "base/stop.h"

namespace tessera::base {
namespace {

constexpr size_t kLargest = size_t{64} << 20, kDeepest = 100;
constexpr size_t kShown = 20;  // bytes quoted by an error
// Memory limit of a tree, more than twice the need of the largest tokenizer: a value of two bytes
// of text takes up to two hundred.
constexpr size_t kMostMemory = size_t{320} << 20;
constexpr size_t kLeastMemory = size_t{4} << 20;  // configs of models take less memory
thread_local size_t most_memory = kMostMemory;    // smaller under a memory budget
constexpr size_t kValue = 32, kText = 48, kArray = 40, kObject = 64, kEntry = 96;

// Builds a value within the limits; fails when the thread's work is stopped.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json result;
  std::string problem;
  size_t memory() const { return memory_; }
  size_t wrong_at = 0;  // byte of the syntax error, from 1; 0: `problem` has the reason
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override {
    return take(kText + on_heap(value)) && put(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return take(kObject) && enter(Json::object()); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return take(kArray) && enter(Json::array()); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (!take(kEntry + on_heap(name))) return false;
    const auto [at, added] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    slot_ = &at->second;
    if (!added) problem = fmt::format("the key {} stands twice", printable(name));
    return added;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    wrong_at = position;
    return false;
  }

 private:
  // Inserts a value into the open container: at the end of an array, or at the last key.
  Json& place(Json value) {
    check_stop();
    if (open_.empty()) return result = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return *slot_ = std::move(value);
  }
  bool put(Json value) {
    place(std::move(value));
    return take(kValue);
  }
  static size_t on_heap(const std::string& text) { return text.size() < 16 ? 0 : text.size() + 17; }
  bool take(size_t bytes) {
    memory_ += bytes;
    if (memory_ <= most_memory) return true;
    problem = fmt::format("its values take more than {} MB of memory", most_memory >> 20);
    return false;
  }
  bool enter(Json empty) {
    if (!take(kValue)) return false;
    open_.push_back(&place(std::move(empty)));
    if (open_.size() <= kDeepest) return true;
    problem = fmt::format("it is nested deeper than {} levels", kDeepest);
    return false;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }
  std::vector<Json*> open_;
  size_t memory_ = 0;
  Json* slot_ = nullptr;
};

// The reason why a text is invalid.
std::string problem_of(const Builder& builder, std::string_view text) {
  if (builder.wrong_at == 0) return builder.problem;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "nothing stands in it";
  if (builder.wrong_at > text.size()) return "it breaks off";
  const std::string_view behind = text.substr(builder.wrong_at - 1, kShown);
  return fmt::format("it is damaged at byte {}, at {}", builder.wrong_at, printable(behind));
}

Json parsed(std::string_view text, const std::string& name, const char* remedy) {
  require(text.size() <= kLargest, ErrorCode::model, "{}: {} bytes of JSON; expected at most {}",
          name, text.size(), kLargest);
  std::string plain;  // backing store of `text`
  if (has_python_numbers(text)) text = plain = without_python_numbers(text);
  Builder builder;
  const bool whole = Json::sax_parse(text.begin(), text.end(), &builder);
  require(builder.memory() <= most_memory || most_memory == kMostMemory, ErrorCode::memory,
          "{}: its values take more memory than `memory_budget` allows", name);
  require(whole, ErrorCode::model, "{}: this is no JSON that can be read: {}{}", name,
          problem_of(builder, text), remedy);
  return std::move(builder.result);
}

}  // namespace

BindJsonMemory::BindJsonMemory(int64_t budget) : before_(most_memory) {
  if (budget > 0) most_memory = std::clamp(static_cast<size_t>(budget), kLeastMemory, kMostMemory);
}
BindJsonMemory::~BindJsonMemory() { most_memory = before_; }

Json parse_json(std::string_view text, const std::string& name) { return parsed(text, name, ""); }

Json read_json(const std::string& path) {
  return parsed(read_file(path, static_cast<int64_t>(kLargest)), path, "; download the file again");
}

}  // namespace tessera::base
