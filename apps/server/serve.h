#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "server/options.h"

namespace tessera::server {

/// Serves until a stop is requested; then refuses new work and lets running jobs end. `log` gets
/// lines for standard error, on any thread. Throws Error(usage) for a public address without keys,
/// and errors of models, store and address.
void serve(const ServeOptions& options, const std::stop_token& stop,
           const std::function<void(const std::string& line)>& log);

}  // namespace tessera::server
