#include "server/brief.h"

#include <algorithm>

namespace tessera::server {
namespace {

constexpr size_t kText = 256, kAll = 1024;  // bytes of each text, and of all texts of a client
constexpr size_t kValue = 8;                // minimum bytes of a value

// Cuts a text at a character boundary.
std::string begin_of(const std::string& text, size_t most) {
  size_t end = std::min(most, text.size());
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end) + "…";
}

class Shortener {
 public:
  /// Returns true if something was cut.
  bool shorten(Json& value) {
    cut_ = false;
    cut_value(value);
    return cut_;
  }

 private:
  void cut_value(Json& value) {
    take(kValue);
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      const size_t most = std::min(kText, left_);
      const size_t size = std::min(text.size(), most);
      if (text.size() > most) {
        value = begin_of(text, most);
        cut_ = true;
      }
      take(size);
    } else if (value.is_structured()) {
      shorten_items(value);
    }
  }

  void take(size_t bytes) { left_ -= std::min(left_, bytes); }

  void shorten_items(Json& value) {
    Json result = value.is_array() ? Json::array() : Json::object();
    for (auto& [name, item] : value.items()) {
      const size_t size = value.is_object() ? name.size() : 0;
      if (left_ <= size) {
        cut_ = true;
        break;
      }
      take(size);
      cut_value(item);
      if (value.is_array())
        result.push_back(std::move(item));
      else
        result[name] = std::move(item);
    }
    value = std::move(result);
  }

  size_t left_ = kAll;
  bool cut_ = false;
};

}  // namespace

Json brief_of(Json job) {
  job.erase("report");
  Shortener shortener;
  Json shortened = Json::array();
  for (const char* name : {"request", "text", "error", "waits_for"})
    if (const auto it = job.find(name); it != job.end() && shortener.shorten(*it))
      shortened.push_back(name);
  if (!shortened.empty()) job["shortened"] = std::move(shortened);
  return job;
}

}  // namespace tessera::server
