#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/request.h"

namespace tessera::server {

struct ServeOptions {
  std::vector<std::string> models;
  RunOptions run;
  std::string host = "127.0.0.1";
  int port = 8080;            ///< 0: any that is free
  std::string api_keys;       ///< file of keys; "": none, and then this machine alone is served
  std::string store;          ///< folder; "": a temporary one
  int queue = 256;            ///< jobs that wait at most
  int at_once = 2;            ///< requests that run at once
  int batch = 8;              ///< samples that run as one request
  double keep = 7 * 86400;    ///< seconds for which ended jobs stay
  double grace = 30;          ///< seconds that running work has to end
  int64_t body = 1 << 20;     ///< bytes of a request at most
  int64_t pixels = 64 << 20;  ///< of a request at most
  bool json_log = false;
};

/// Serves until a stop is requested; then takes no more, and lets what runs end. `said` gets lines
/// for standard error, on any thread. Throws Error(usage) for another address than this machine's
/// without keys, and what the models, the store and the address are refused for.
void serve(const ServeOptions& options, const std::stop_token& stop,
           const std::function<void(const std::string& line)>& said);

}  // namespace tessera::server
