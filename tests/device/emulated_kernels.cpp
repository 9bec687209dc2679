#include "device/emulated_kernels.h"

#include <atomic>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/attention.h"
#include "kernels/biased_attention.h"
#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/finite.h"
#include "kernels/group_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/plane_affine.h"
#include "kernels/rope.h"
#include "kernels/routing.h"
#include "kernels/sampling.h"
#include "kernels/selection.h"
#include "kernels/waves.h"
#include "tensor/scope.h"

namespace tessera::device {
namespace {

using namespace kernels;

std::atomic<Arena*> served{nullptr};
std::atomic<int64_t> run_count{0};

using Pointers = std::initializer_list<const void*>;

void expect(const char* kernel, bool on_device, const char* what) {
  if (!on_device)
    throw std::logic_error(std::string(kernel) + ": " + what + " is not on the device");
}

// Null means the argument is absent.
void check_arrays(const char* kernel, Pointers pointers) {
  int at = 0;
  for (const void* p : pointers)
    expect(kernel, p == nullptr || served.load()->holds(p),
           ("array " + std::to_string(at++)).c_str());
}

void check_weight(const char* kernel, const PackedWeight& w) {
  expect(kernel, w.isa == Isa::reference, "a weight packed row major");
  check_arrays(kernel, {w.data.raw(), w.scales.defined() ? w.scales.raw() : nullptr});
}

void check(const MatmulArgs& a) {
  const Epilogue& e = a.epilogue;
  check_arrays("matmul", {a.x, a.y, e.bias, e.gate, e.row_of, e.residual});
  check_weight("matmul", *a.weight);
}
void check(const ExpertsArgs& a) {
  check_arrays("experts", {a.x, a.ids, a.rows});
  for (int64_t e = 0; e < a.experts; ++e) {
    check_weight("experts", *a.bank[e].up);
    check_weight("experts", *a.bank[e].down);
    check_arrays("experts", {a.bank[e].up_bias, a.bank[e].down_bias});
  }
}
void check(const CombineArgs& a) { check_arrays("combine", {a.rows, a.weights, a.shared, a.y}); }
void check(const AttentionArgs& a) {
  check_arrays("attention", {a.q, a.k, a.v, a.out, a.spans, a.lse});
}
void check(const NormArgs& a) {
  check_arrays("norm", {a.x, a.y, a.weight, a.bias, a.shift, a.scale, a.row_of, a.cos, a.sin});
}
void check(const ElementwiseArgs& a) {
  check_arrays("elementwise", {a.a, a.b, a.y, a.gate, a.row_of});
}
void check(const RopeArgs& a) { check_arrays("rope", {a.x, a.y, a.cos, a.sin}); }
void check(const ConvArgs& a) {
  check_arrays("conv", {a.x, a.scale_shift, a.residual, a.y, a.weight->data.raw(),
                        a.weight->bias.defined() ? a.weight->bias.raw() : nullptr});
  expect("conv", a.weight->isa == Isa::reference, "a filter packed row major");
}
void check(const ChannelMomentsArgs& a) { check_arrays("channel_moments", {a.x, a.moments}); }
void check(const ChannelAffineArgs& a) {
  check_arrays("channel_affine", {a.x, a.scale_shift, a.y});
}
void check(const GroupScaleShiftArgs& a) {
  check_arrays("group_scale_shift", {a.moments, a.weight, a.bias, a.scale_shift});
}
void check(const CopyArgs& a) { check_arrays("copy", {a.x, a.y}); }
void check(const MoveRowsArgs& a) { check_arrays("move_rows", {a.x, a.y, a.from, a.to}); }
void check(const RouteArgs& a) {
  check_arrays("route", {a.logits, a.bias, a.ids, a.weights, a.scores});
}
void check(const VotesArgs& a) {
  check(a.router);
  check(a.route);
  check_arrays("expert_votes", {a.group_of, a.votes});
}
void check(const CoresetsArgs& a) { check_arrays("coresets", {a.votes, a.cores}); }
void check(const InsideArgs& a) {
  check(a.router);
  check_arrays("choose_inside", {a.group_of, a.cores, a.ballot.votes, a.ids, a.weights});
}
void check(const MagnitudesArgs& a) { check_arrays("magnitudes", {a.x, a.sums}); }
void check(const FatesArgs& a) { check_arrays("token_fates", {a.importance, a.group_of, a.fates}); }
void check(const TailArgs& a) {
  check_arrays("drop_tail", {a.group_of, a.fates, a.ids, a.weights});
}
void check(const WavesArgs& a) { check_arrays("waves", {a.t, a.frequency, a.y}); }
void check(const PlaneAffineArgs& a) {
  check_arrays("plane_affine", {a.x, a.scale_shift, a.gain, a.bias, a.y});
}
void check(const BiasedAttentionArgs& a) {
  check_arrays("biased_attention", {a.q, a.k, a.v, a.bias, a.out});
}
void check(const LinearStepArgs& a) {
  check_arrays("linear_step", {a.x.data, a.prediction.data, a.noise.data, a.earlier[0].data,
                               a.earlier[1].data, a.earlier[2].data, a.next, a.estimate});
}
void check(const LearnedRangeStepArgs& a) {
  check_arrays("learned_range_step", {a.x.data, a.prediction.data, a.noise.data, a.next});
}
void check(const FlowStepArgs& a) {
  check_arrays("flow_step", {a.x.data, a.velocity.data, a.next});
}
void check(const GuideArgs& a) { check_arrays("guide", {a.cond.data, a.uncond.data, a.y}); }
void check(const PeaksArgs& a) { check_arrays("peaks", {a.logits.data, a.peaks}); }
void check(const FiniteArgs& a) { check_arrays("all_finite", {a.x, a.finite}); }

// Copies of arguments that outlive the call.
template <class Args>
struct Held {
  explicit Held(const Args& given) : args(given) {}
  Args args;
};
template <>
struct Held<ExpertsArgs> {
  explicit Held(const ExpertsArgs& given)
      : bank(std::make_shared<std::vector<ExpertView>>(given.bank, given.bank + given.experts)),
        args(given) {
    args.bank = bank->data();
  }
  std::shared_ptr<std::vector<ExpertView>> bank;
  ExpertsArgs args;
};

template <class Args, void (*KernelTable::*Member)(const Args&)>
void emulated(const Args& args) {
  check(args);
  do_or_record(tensor::current_scope().stream, [held = Held<Args>(args)] {
    ++run_count;
    const Arena::Open open(*served.load());
    (cpu_table(Isa::reference).*Member)(held.args);
  });
}

// Runs the last first: no kernel may read a result of another.
void emulated_group(std::span<const MatmulArgs> all) {
  for (size_t i = all.size(); i > 0; --i) emulated<MatmulArgs, &KernelTable::matmul>(all[i - 1]);
}

KernelTable make_table() {
  KernelTable t;
  t.matmul = emulated<MatmulArgs, &KernelTable::matmul>;
  t.matmul_group = emulated_group;
  t.experts = emulated<ExpertsArgs, &KernelTable::experts>;
  t.combine = emulated<CombineArgs, &KernelTable::combine>;
  t.attention = emulated<AttentionArgs, &KernelTable::attention>;
  t.norm = emulated<NormArgs, &KernelTable::norm>;
  t.elementwise = emulated<ElementwiseArgs, &KernelTable::elementwise>;
  t.rope = emulated<RopeArgs, &KernelTable::rope>;
  t.conv = emulated<ConvArgs, &KernelTable::conv>;
  t.channel_moments = emulated<ChannelMomentsArgs, &KernelTable::channel_moments>;
  t.channel_affine = emulated<ChannelAffineArgs, &KernelTable::channel_affine>;
  t.group_scale_shift = emulated<GroupScaleShiftArgs, &KernelTable::group_scale_shift>;
  t.copy = emulated<CopyArgs, &KernelTable::copy>;
  t.move_rows = emulated<MoveRowsArgs, &KernelTable::move_rows>;
  t.route = emulated<RouteArgs, &KernelTable::route>;
  t.expert_votes = emulated<VotesArgs, &KernelTable::expert_votes>;
  t.coresets = emulated<CoresetsArgs, &KernelTable::coresets>;
  t.choose_inside = emulated<InsideArgs, &KernelTable::choose_inside>;
  t.magnitudes = emulated<MagnitudesArgs, &KernelTable::magnitudes>;
  t.token_fates = emulated<FatesArgs, &KernelTable::token_fates>;
  t.drop_tail = emulated<TailArgs, &KernelTable::drop_tail>;
  t.waves = emulated<WavesArgs, &KernelTable::waves>;
  t.plane_affine = emulated<PlaneAffineArgs, &KernelTable::plane_affine>;
  t.biased_attention = emulated<BiasedAttentionArgs, &KernelTable::biased_attention>;
  t.linear_step = emulated<LinearStepArgs, &KernelTable::linear_step>;
  t.learned_range_step = emulated<LearnedRangeStepArgs, &KernelTable::learned_range_step>;
  t.flow_step = emulated<FlowStepArgs, &KernelTable::flow_step>;
  t.guide = emulated<GuideArgs, &KernelTable::guide>;
  t.peaks = emulated<PeaksArgs, &KernelTable::peaks>;
  t.all_finite = emulated<FiniteArgs, &KernelTable::all_finite>;
  return t;
}

}  // namespace

const KernelTable& emulated_table() {
  static const KernelTable table = make_table();
  return table;
}

void serve_kernels(Arena* arena) {
  served = arena;
  run_count = 0;
}

int64_t kernels_run() { return run_count; }

}  // namespace tessera::device
