#include "server/json_reader.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "server/refusal.h"

namespace tessera::server {
namespace {

// Counts the values of a text during parsing; builds nothing.
class Checker final : public nlohmann::json_sax<Json> {
 public:
  Checker(const JsonLimits& limits, const std::string& subject, const std::string& param)
      : limits_(limits), subject_(subject), param_(param) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool key(string_t& name) override {
    auto& names = open_.back();
    searches_ += names.size();
    if (!names.insert(name).second)
      throw wrong(param_.empty() ? name.substr(0, 100) : param_,
                  subject_ + ": a name stands twice in one object");
    if (names.size() > limits_.names)
      refuse(": an object has more than " + std::to_string(limits_.names) + " names");
    if (searches_ > limits_.searches) refuse(": its objects have too many names");
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    const std::string reason =
        error.what();  // "[json.exception.parse_error.101] parse error at ..."
    throw wrong(param_,
                subject_ + " is no JSON: " +
                    reason.substr(std::min(reason.find("] ") + 2, reason.size())).substr(0, 200));
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw wrong(param_, subject_ + reason + "; nothing here needs that");
  }
  bool count() {
    if (++values_ > limits_.values)
      refuse(" has more than " + std::to_string(limits_.values) + " values");
    if (values_ == 1 && open_.empty())
      throw wrong(param_, subject_ + " is no JSON object: expected {...}");
    return true;
  }
  bool open() {
    if (open_.size() >= limits_.depth)
      refuse(" is nested deeper than " + std::to_string(limits_.depth));
    open_.emplace_back();
    return count();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  const std::string &subject_, &param_;
  std::vector<std::unordered_set<std::string>> open_;  // names of open objects; empty for lists
  size_t values_ = 0, searches_ = 0;
};

}  // namespace

Json parse_object(std::string_view text, const std::string& subject, const std::string& param,
                  const JsonLimits& limits) {
  Checker checker(limits, subject, param);
  Json::sax_parse(text, &checker);
  Json parsed = Json::parse(text);  // linear; a callback would cost a scan of lists
  if (!parsed.is_object()) throw wrong(param, subject + " is no JSON object: expected {...}");
  return parsed;
}

Json parse_body(std::string_view body) { return parse_object(body, "the body", ""); }

}  // namespace tessera::server
