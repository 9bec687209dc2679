#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

/// GenerateRequest and CompleteRequest, field by field; choices by their words.
void bind_requests(nanobind::module_& module);

}  // namespace tessera::python
