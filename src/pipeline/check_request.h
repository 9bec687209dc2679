#pragma once

#include "tessera/complete.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// Refuse values that no model takes: Error(usage). What depends on the model is checked where it
/// is read.
void check_request(const RunOptions& options);
void check_request(const GenerateRequest& request);
void check_request(const CompleteRequest& request);
void check_request(const ForwardRequest& request);
void check_request(const QuantiseRequest& request);

}  // namespace tessera::pipeline
