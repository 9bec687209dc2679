#pragma once

#include <string>
#include <vector>

namespace tessera::server {

/// Owner of a key.
struct KeyOwner {
  std::string name;
  bool is_operator = false;  ///< may see the numbers of all clients
};

/// Clients of the server. Lines are `NAME KEY`, `NAME KEY operator`, or a key alone; the owner is
/// then named by the key's digest ("key 3f9a1c02"). Several keys with the same name belong to the
/// same client, so that keys can be rotated. Empty lines and lines beginning with '#' are ignored.
class ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws Error(usage) for a file that is unreadable, owned by another user (except root),
  /// writable by its group or accessible by others, or has no key, a key below 16 characters, a
  /// repeated key or an invalid name.
  explicit ApiKeys(const std::string& path);

  bool any() const { return !keys_.empty(); }
  /// Owner of the key in "Bearer KEY"; null if unknown. The time does not depend on the key, nor on
  /// the number of matching characters.
  const KeyOwner* owner_of(const std::string& authorization) const;
  /// Distinct names, in order.
  std::vector<std::string> names() const;
  /// Names with several keys, in rotation.
  std::vector<std::string> rotated() const;

 private:
  struct Key {
    KeyOwner owner;
    std::string secret;
  };
  void add_line(const std::string& path, int number, const std::string& line);

  std::vector<Key> keys_;
};

/// Compares two texts in a time that depends only on the length of `candidate`.
bool same_text(const std::string& candidate, const std::string& secret);
/// True if a client is an address, the name of a client without a key. Key names must not be
/// addresses.
bool is_address(const std::string& client);

}  // namespace tessera::server
