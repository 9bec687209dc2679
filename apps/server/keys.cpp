#include "server/keys.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "tessera/error.h"

namespace tessera::server {
namespace {

constexpr size_t kLeast = 16, kMost = 4096;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::usage, "--api-keys '" + path + "': " + why);
}

}  // namespace

bool same_text(const std::string& given, const std::string& secret) {
  volatile unsigned char differs = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    differs = static_cast<unsigned char>(differs | (given[i] ^ other));
  }
  return differs == 0;
}

ApiKeys::ApiKeys(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode))
    refuse(path, "there is no such file; write a line 'NAME KEY' for each client into it");
  if (found.st_mode & S_IROTH) refuse(path, "everybody can read it; chmod 600 it");
  std::ifstream file(path);
  if (!file) refuse(path, "cannot be read");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string name, key, more;
    words >> name >> key >> more;
    if (name.empty() || name.starts_with('#')) continue;
    if (key.empty()) key = std::exchange(name, "line " + std::to_string(number));
    const std::string where = "line " + std::to_string(number);
    if (!more.empty()) refuse(path, where + " has more than a name and a key");
    if (key.size() < kLeast || key.size() > kMost)
      refuse(path, where + ": a key has at least 16 characters; `openssl rand -hex 24` makes one");
    for (const auto& [other, known] : keys_)
      if (known == key)
        refuse(path, std::string(where).append(": the key of '").append(other).append("' again"));
    keys_.emplace_back(name, key);
  }
  if (keys_.empty()) refuse(path, "there is no key in it; write lines of a name and a key");
}

std::string ApiKeys::name_of(const std::string& authorization) const {
  if (!authorization.starts_with("Bearer ") || authorization.size() > kMost) return "";
  const std::string given = authorization.substr(7);
  std::string name;
  for (const auto& [who, key] : keys_)
    if (same_text(given, key)) name = who;
  return name;
}

}  // namespace tessera::server
