#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "engine/state.h"
#include "pipeline/check_request.h"
#include "pipeline/forward.h"
#include "pipeline/generate.h"
#include "pipeline/quantise.h"
#include "runtime/open_model.h"

namespace tessera {

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model::State& Model::state() const {
  require(state_ != nullptr, ErrorCode::usage, "this Model was moved from; open it again");
  return *state_;
}

GenerateResult Model::generate(const GenerateRequest& request, const RunControl& control) const {
  return pipeline::generate(state(), request, control);
}

std::vector<GenerateResult> Model::generate_all(std::span<const GenerateRequest> requests,
                                                const RunControl& control) const {
  return pipeline::generate(state(), requests, control);
}

void Model::check(const GenerateRequest& request, const std::stop_token& stop) const {
  pipeline::check(state(), request, stop);
}

NamedTensors Model::forward(const ForwardRequest& request, const RunControl& control) const {
  return pipeline::forward(state(), request, control);
}

QuantiseResult Model::quantise(const QuantiseRequest& request, const RunControl& control) const {
  return pipeline::quantise(state(), request, control);
}

bool Model::makes_videos() const { return state().spec && state().spec->frames_per_latent > 0; }

double Model::frame_rate() const { return state().spec ? state().spec->frame_rate : 0; }

int64_t Model::classes() const { return state().spec ? state().spec->classes : 0; }

Model Model::open(const std::string& model, const RunOptions& options, const std::stop_token& stop,
                  const WeightFiles& files) {
  pipeline::check_request(options);
  const base::BindStop bind(stop);
  auto state = std::make_unique<State>();
  runtime::open_model(model, options, *state, files);
  return Model(std::move(state));
}

}  // namespace tessera
