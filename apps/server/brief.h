#pragma once

#include "server/json.h"

namespace tessera::server {

/// A job as a list shows it: without its report, and with the begin of long texts alone;
/// `shortened` names the fields of which something was cut.
Json brief_of(Json job);

}  // namespace tessera::server
