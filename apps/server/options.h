#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/request_limits.h"
#include "tessera/request.h"
#include "tessera/weight_files.h"

namespace tessera::server {

/// Options of a server; jobs and listener read their part.
struct ServeOptions {
  std::vector<std::string> models;
  RunOptions run;
  WeightFiles files;  ///< replacement weights for a single model
  std::string host = "127.0.0.1";
  int port = 8080;                          ///< 0: any free port
  std::string api_keys;                     ///< key file; "": no keys, loopback only
  std::string store;                        ///< folder; "": a temporary one
  int queue = 256;                          ///< maximum number of waiting jobs
  int at_once = 2;                          ///< concurrent requests; 1 if ranks are processes
  int batch = 8;                            ///< maximum samples of merged jobs; 1: no merging
  double keep = 7 * 86400;                  ///< seconds until ended jobs are deleted
  int64_t store_limit = 0;                  ///< bytes of all jobs in the store; 0: no limit
  int64_t prefix_cache = int64_t{1} << 30;  ///< bytes of kept conversations; 0: none are kept
  bool all_clients = false;                 ///< without keys, also opens stores made with keys
  double job_time = 0;                      ///< maximum seconds of a run; 0: no limit
  double grace = 30;                        ///< seconds for running jobs to end at shutdown
  int64_t body = 1 << 20;                   ///< maximum bytes of a request
  int64_t image_body = 16 << 20;            ///< maximum bytes of a request with images
  Limits limits;                            ///< limits of request fields
  unsigned connections = 20000;             ///< maximum, further limited by the system
  unsigned head = 30;                       ///< seconds for the headers after the first line
  unsigned request = 120;                   ///< seconds for the body, and for a small answer
  unsigned idle = 120;                      ///< seconds of silence before the first line
  unsigned beat = 15;                       ///< seconds between comments in a silent stream
  bool json_log = false;
};

}  // namespace tessera::server
