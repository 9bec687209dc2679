#pragma once

#include <string>
#include <vector>

namespace tessera::server {

/// Who a key is of.
struct KeyOwner {
  std::string name;
  bool is_operator = false;  ///< sees the numbers of all clients
};

/// Who may ask: lines `NAME KEY`, `NAME KEY operator`, or a key alone, whose owner is called by a
/// digest of it ("key 3f9a1c02"). Several keys of one name are one client's: its new key beside the
/// old one. Empty lines and what follows '#' at the begin of a line count for nothing.
class ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws Error(usage) for a file that cannot be read, belongs to another user (but root), may be
  /// written by its group or used by others at all, has no key, one below 16 characters, one twice,
  /// or a name that is no name.
  explicit ApiKeys(const std::string& path);

  bool any() const { return !keys_.empty(); }
  /// The owner of the key in "Bearer KEY"; null when there is none of it. Takes as long whichever
  /// key it is compared with, and however much of it is right.
  const KeyOwner* owner_of(const std::string& authorization) const;
  /// The names, each once, in their order.
  std::vector<std::string> names() const;
  /// Names with several keys.
  std::vector<std::string> rotated() const;

 private:
  struct Key {
    KeyOwner owner;
    std::string secret;
  };
  void add_line(const std::string& path, int number, const std::string& line);

  std::vector<Key> keys_;
};

/// Whether two texts are the same, in a time that depends on the length of `given` alone.
bool same_text(const std::string& given, const std::string& secret);
/// Whether a client is an address, as it is called without keys; no name of a key may be one.
bool is_address(const std::string& client);

}  // namespace tessera::server
