#pragma once

#include <cstdint>

namespace tessera {

/// A kind of traffic between ranks: activations and weights of a plan, latents and images of
/// decoding, control words such as a decision to stop, and reports of a run.
enum class TrafficKind : uint8_t { plan, decode, control, report };

}  // namespace tessera
