#pragma once

#include "server/json.h"

namespace tessera::server {

/// Summarises a job for a list: no report, and only the beginning of long texts. `shortened` names
/// the cut fields.
Json brief_of(Json job);

}  // namespace tessera::server
