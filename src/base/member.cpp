#include "base/member.h"

namespace tessera::base {

const Json& member(const Json& json, const char* key) {
  static const Json kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

}  // namespace tessera::base
