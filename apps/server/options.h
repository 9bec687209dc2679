#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/request_limits.h"
#include "tessera/request.h"
#include "tessera/weight_files.h"

namespace tessera::server {

/// What a server is started with; its jobs and its listener read their part of it.
struct ServeOptions {
  std::vector<std::string> models;
  RunOptions run;
  WeightFiles files;  ///< in place of weights of the one model
  std::string host = "127.0.0.1";
  int port = 8080;                ///< 0: any that is free
  std::string api_keys;           ///< file of keys; "": none, and then this machine alone is served
  std::string store;              ///< folder; "": a temporary one
  int queue = 256;                ///< jobs that wait at most
  int at_once = 2;                ///< requests that run at once; of ranks that are processes one
  int batch = 8;                  ///< samples of jobs that run as one request; 1: each alone
  double keep = 7 * 86400;        ///< seconds for which ended jobs stay
  int64_t store_limit = 0;        ///< bytes of all jobs in the store; 0: no limit
  bool all_clients = false;       ///< without keys, also a store whose jobs are clients' with keys
  double job_time = 0;            ///< seconds that a job may run; 0: no limit
  double grace = 30;              ///< seconds that running work has to end
  int64_t body = 1 << 20;         ///< bytes of a request at most
  int64_t image_body = 16 << 20;  ///< the same where requests have images
  Limits limits;                  ///< of what a request asks for
  unsigned connections = 20000;   ///< at most, and as the system allows
  unsigned head = 30;             ///< seconds for the head of a request behind its first line
  unsigned request = 120;         ///< seconds for its body, and for an answer of a small size
  unsigned idle = 120;  ///< seconds that a connection may be silent, or takes for a first line
  unsigned beat = 15;   ///< seconds between comments in a silent stream
  bool json_log = false;
};

}  // namespace tessera::server
