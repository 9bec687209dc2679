#include "base/member.h"

namespace tessera::base {

const Json& member(const Json& json, const char* key) {
  static const Json kNull;
  const auto it = json.find(key);
  return it == json.end() ? kNull : *it;
}

}  // namespace tessera::base
