// Replaces the server in a build without the libraries needed for serving.
#include "server/serve.h"
#include "tessera/error.h"

namespace tessera::server {

void serve(const ServeOptions&, const std::stop_token&,
           const std::function<void(const std::string&)>&) {
  throw Error(ErrorCode::usage,
              "this program was built without its server: install libmicrohttpd-dev, "
              "prometheus-cpp-dev and libsqlite3-dev, and build it again");
}

}  // namespace tessera::server
