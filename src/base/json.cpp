#include "base/json.h"

#include <set>
#include <vector>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/python_json.h"
#include "base/stop.h"

namespace tessera::base {
namespace {

constexpr size_t kLargest = size_t{64} << 20, kDeepest = 100;

// Says yes to every event within the limits; remembers the keys of the objects that are open.
class Limits : public nlohmann::json_sax<Json> {
 public:
  std::string problem;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    check_stop();
    if (keys_.back().insert(name).second) return true;
    problem = fmt::format("the key {} stands twice", printable(name));
    return false;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    problem = fmt::format("it is damaged at byte {}", position);
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() <= kDeepest) return true;
    problem = fmt::format("it is nested deeper than {} levels", kDeepest);
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  require(text.size() <= kLargest, ErrorCode::model, "{}: {} bytes of JSON; expected at most {}",
          name, text.size(), kLargest);
  std::string plain;  // lives as long as `text` points to it
  if (has_python_numbers(text)) text = plain = without_python_numbers(text);
  Limits limits;
  require(Json::sax_parse(text.begin(), text.end(), &limits), ErrorCode::model,
          "{}: this is no JSON that can be read: {}; download the file again", name,
          limits.problem);
  return Json::parse(text.begin(), text.end());
}

Json read_json(const std::string& path) {
  return parse_json(read_file(path, static_cast<int64_t>(kLargest)), path);
}

}  // namespace tessera::base
