#pragma once

#include "runtime/model_state.h"
#include "tessera/engine.h"

namespace tessera {

struct Model::State : runtime::ModelState {};

}  // namespace tessera
