#pragma once

#include "tessera/complete.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// Refuse values without any valid model: Error(usage). Checks that depend on the model follow at
/// their reads.
void check_request(const RunOptions& options);
void check_request(const GenerateRequest& request);
void check_request(const CompleteRequest& request);
void check_request(const ForwardRequest& request);
void check_request(const QuantiseRequest& request);

}  // namespace tessera::pipeline
