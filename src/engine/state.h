#pragma once

#include "pipeline/model_state.h"
#include "tessera/engine.h"

namespace tessera {

struct Model::State : pipeline::ModelState {};

}  // namespace tessera
