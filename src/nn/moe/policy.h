#pragma once

#include "nn/seams.h"

namespace tessera::nn {

/// A call of an MoE layer: `site` of Geometry::experts, the step, and the owners of its tokens;
/// `first`: the first of them that are routed (Gate::part).
struct MoeCall {
  int site = 0;
  StepInfo step;
  const TokenView& view;
  int64_t first = 0;
};

/// Selects experts for tokens, between the logits of a router and a routing. The view groups tokens
/// by sequence and names the ranks with the other tokens (view.peers).
class ExpertPolicy {
 public:
  virtual ~ExpertPolicy() = default;
  /// tokens [tokens, hidden] and their logits f32 [tokens, experts] -> a routing of any number of
  /// slots, the same on all ranks; unused ones are -1 with weight 0.
  virtual ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                              const ops::RoutingOptions& router) const = 0;
  /// True if a token's experts depend on its own logits alone, so a call may choose in parts.
  virtual bool by_token() const { return false; }
};

/// The model's router.
class VanillaPolicy final : public ExpertPolicy {
 public:
  ops::Routing choose(const MoeCall&, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& router) const override {
    return ops::route(logits, router);
  }
  bool by_token() const override { return true; }
};

/// A router under a policy, for the tokens of a call.
class Gate {
 public:
  /// All arguments must outlive this object.
  Gate(const Router& router, const ExpertPolicy& policy, const MoeCall& call)
      : router_(router), policy_(policy), call_(call) {}

  ops::Routing operator()(const Tensor& tokens) const {
    return policy_.choose(call_, router_.input(tokens), router_.logits(tokens), router_.options);
  }
  bool by_token() const { return policy_.by_token(); }
  /// The choice for a run of the call's tokens; needs by_token().
  ops::Routing part(const Tensor& tokens, Range run) const {
    Router router = router_;
    if (router.features.defined()) router.features = router.features.slice(0, run.begin, run.end);
    const Tensor x = tokens.slice(0, run.begin, run.end);
    const MoeCall part{call_.site, call_.step, call_.view, call_.first + run.begin};
    return policy_.choose(part, router.input(x), router.logits(x), router.options);
  }
  /// For backends with decisions of their own, and for comparisons.
  const Router& router() const { return router_; }

 private:
  const Router& router_;
  const ExpertPolicy& policy_;
  const MoeCall& call_;
};

}  // namespace tessera::nn
