#include "server/keys.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "server/descriptor.h"
#include "server/digest.h"
#include "server/header_values.h"
#include "tessera/error.h"

namespace tessera::server {
namespace {

constexpr size_t kLeast = 16, kMost = 4096, kMostOfName = 100, kMostOfFile = size_t{1} << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::usage, "--api-keys '" + path + "': " + reason);
}

// Reads a file accessible to the owner only. Modes and contents come from the same open file.
std::string read_secret(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  struct stat status {};
  if (!file && error != ENOENT && error != ENOTDIR)
    refuse(path, std::string("cannot be read: ") + std::strerror(error));
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    refuse(path, "there is no such file; write a line 'NAME KEY' for each client into it");
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    refuse(path, "it belongs to another user; chown it");
  if ((status.st_mode & S_IRWXO) != 0) refuse(path, "everybody can use it; chmod 600 it");
  if ((status.st_mode & S_IWGRP) != 0) refuse(path, "its group can write it; chmod 600 it");
  std::string text(kMostOfFile + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0) refuse(path, std::string("cannot be read: ") + std::strerror(errno));
    if (count == 0) break;
    size += size_t(count);
  }
  if (size > kMostOfFile) refuse(path, "it is above 1 MiB; is it a file of keys?");
  text.resize(size);
  const std::string mark = "\xef\xbb\xbf";  // byte order mark written by some editors
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

// Names appear in logs and answers.
bool is_name(const std::string& name) {
  return name.size() <= kMostOfName && !is_address(name) &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

bool same_text(const std::string& candidate, const std::string& secret) {
  volatile unsigned char differs = candidate.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < candidate.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    differs = static_cast<unsigned char>(differs | (candidate[i] ^ other));
  }
  return differs == 0;
}

bool is_address(const std::string& client) {
  unsigned char bytes[sizeof(in6_addr)];
  return client == "?" || ::inet_pton(AF_INET, client.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, client.c_str(), bytes) == 1;
}

ApiKeys::ApiKeys(const std::string& path) {
  std::istringstream file(read_secret(path));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) add_line(path, number, line);
  if (keys_.empty()) refuse(path, "there is no key in it; write lines of a name and a key");
}

void ApiKeys::add_line(const std::string& path, int number, const std::string& line) {
  std::istringstream words(line);
  std::string name, key, role, more;
  words >> name >> key >> role >> more;
  if (name.empty() || name.starts_with('#')) return;
  const bool nameless = key.empty();
  if (nameless) key = name;
  const std::string location = "line " + std::to_string(number);
  if (!more.empty() || (!role.empty() && role != "operator"))
    refuse(path, location + " has more than a name, a key and the word operator");
  if (key.size() < kLeast || key.size() > kMost)
    refuse(path, location + ": a key has at least 16 characters; `openssl rand -hex 24` makes one");
  if (nameless) name = "key " + sha256(key).substr(0, 8);
  if (!nameless && !is_name(name))
    refuse(path, location +
                     ": a name has up to 100 letters, digits and signs of ASCII, and is no "
                     "address");
  const bool is_operator = role == "operator";
  for (const Key& other : keys_) {
    if (other.secret == key)
      refuse(path, location + ": the key of '" + other.owner.name + "' again");
    if (other.owner.name != name) continue;
    if (nameless) refuse(path, location + ": its digest is that of another key; give it a name");
    if (other.owner.is_operator != is_operator)
      refuse(path, location + ": '" + name + "' is an operator by one key and none by another");
  }
  keys_.push_back({{name, is_operator}, key});
}

const KeyOwner* ApiKeys::owner_of(const std::string& authorization) const {
  if (authorization.size() > kMost) return nullptr;
  const std::string credentials = credentials_of(authorization, "Bearer");
  const KeyOwner* owner = nullptr;
  for (const Key& key : keys_)
    if (same_text(credentials, key.secret)) owner = &key.owner;
  return owner;
}

std::vector<std::string> ApiKeys::names() const {
  std::vector<std::string> names;
  for (const Key& key : keys_)
    if (std::ranges::find(names, key.owner.name) == names.end()) names.push_back(key.owner.name);
  return names;
}

std::vector<std::string> ApiKeys::rotated() const {
  std::vector<std::string> rotated_names = names();
  std::erase_if(rotated_names, [this](const std::string& name) {
    return std::ranges::count_if(keys_, [&](const Key& k) { return k.owner.name == name; }) < 2;
  });
  return rotated_names;
}

}  // namespace tessera::server
