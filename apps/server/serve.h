#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "server/options.h"

namespace tessera::server {

/// Serves until a stop is requested; then takes no more, and lets what runs end. `said` gets lines
/// for standard error, on any thread. Throws Error(usage) for another address than this machine's
/// without keys, and what the models, the store and the address are refused for.
void serve(const ServeOptions& options, const std::stop_token& stop,
           const std::function<void(const std::string& line)>& said);

}  // namespace tessera::server
