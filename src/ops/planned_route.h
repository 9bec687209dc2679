#pragma once

#include "ops/routing.h"

namespace tessera::ops {

/// A routing to be made: checked, counted and allocated.
struct PlannedRoute {
  Routing routing;
  kernels::RouteArgs args;  ///< fills the routing and scores; null logits: there is nothing to do
};
/// `logits`: dense, and alive until a kernel has run. `scores` as for route().
PlannedRoute plan_route(const Tensor& logits, const RoutingOptions& options, Tensor* scores);

}  // namespace tessera::ops
