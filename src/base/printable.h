#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tessera::base {

/// A name from a file, quoted for a line of an error message: control characters become '?', and
/// text beyond 120 bytes is cut. The text is built only when read, so successful checks cost
/// nothing; the name must outlive the object.
class Printable {
 public:
  explicit Printable(std::string_view text) : text_(text) {}
  std::string str() const;
  operator std::string() const { return str(); }

  friend std::string operator+(const Printable& a, std::string_view b) { return a.str().append(b); }
  friend std::string operator+(std::string a, const Printable& b) { return a.append(b.str()); }
  friend bool operator==(const Printable& a, std::string_view b) { return a.str() == b; }

 private:
  std::string_view text_;
};
inline Printable printable(std::string_view text) { return Printable(text); }

}  // namespace tessera::base

template <>
struct fmt::formatter<tessera::base::Printable> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const tessera::base::Printable& name, Context& context) const {
    return fmt::formatter<std::string_view>::format(name.str(), context);
  }
};
