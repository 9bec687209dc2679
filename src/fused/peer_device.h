#pragma once

#include <functional>
#include <memory>

#include "kernels/peer_device.h"

namespace tessera::fused {

using kernels::ExportedMemory, kernels::PeerDevice;

/// The program's GPU (kernels::open_peer_device). `rank`: for tests.
std::unique_ptr<PeerDevice> open_peer_device(int rank);
/// Replaces open_peer_device() in tests; null: no replacement.
using OpenPeerDevice = std::function<std::unique_ptr<PeerDevice>(int rank)>;
void replace_peer_devices(OpenPeerDevice open);

}  // namespace tessera::fused
