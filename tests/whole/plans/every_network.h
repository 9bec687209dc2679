#pragma once

#include <map>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "comm/counting_transport.h"
#include "comm/threads/launch.h"
#include "diffusion/conditioning.h"
#include "models/tiny_model.h"
#include "models/tiny_networks.h"
#include "parallel/denoise.h"
#include "whole/plans/spread_network.h"

namespace tessera {

using models::kNetworks;
using models::Network;
using tensor::DType;
using tensor::Tensor;

constexpr int kSamples = 2, kSteps = 3;

/// A network with a request: two samples of a size indivisible by any number of ranks.
class Subject {
 public:
  /// `more`: additional blocks of the network, beyond the other tests.
  Subject(const Network& network, DType dtype, int64_t height = 6, int64_t width = 10, int more = 0)
      : name(network.type),
        dtype_(dtype),
        model_(network.type, deeper(network.json(network.head_dim), more).c_str(),
               tensor::Device::cpu, dtype),
        layout_(model_.spec.layout(height, width, network.frames)),
        conditioning_(model_.conditioning(2 * kSamples, network.text)),
        text_(network.text) {
    if (conditioning_.tensors.contains("y"))
      for (int32_t s = 0; s < 2 * kSamples; ++s) conditioning_.tensors["y"].data<int32_t>()[s] = s;
    if (model_.spec.joint_text && !model_.spec.text_mask().empty()) add_lengths();
    if (model_.spec.takes_references) add_references();
  }

  struct Asked {
    std::string plan{};
    bool guided = true;
    float rescale = 0;
    std::shared_ptr<const sample::Sampler> sampler = sample::rectified_flow(kSteps);
    bool variances = false;  ///< the sampler reads the whole prediction
    std::string cache{};     ///< a rule of --cache
  };
  using Steps = std::vector<std::vector<float>>;
  struct Ran {
    Steps steps{};                             ///< the latents after each
    Steps predictions{};                       ///< after each
    std::vector<comm::Ledger> sent{};          ///< by rank
    std::vector<std::vector<int64_t>> to{};    ///< bytes by rank and receiver
    std::vector<int64_t> kept{};               ///< bytes of keys and values, by rank
    std::vector<int64_t> buffers{};            ///< peak bytes of buffers, by rank
    std::vector<std::vector<int64_t>> ages{};  ///< ages of read tokens, by rank
    std::vector<std::vector<int>> computed{};  ///< blocks of each step, with a cache
    std::vector<std::vector<int>> negative{};  ///< the same of a negative branch apart
  };
  Ran operator()(const Asked& asked) const {
    const Plan plan = parse_plan(asked.plan);
    const parallel::Workload work = workload(asked);
    const auto world = static_cast<size_t>(plan.world());
    std::vector<std::map<std::string, Tensor>> traces(world);
    Ran ran{.sent = std::vector<comm::Ledger>(world),
            .to = std::vector<std::vector<int64_t>>(world),
            .kept = std::vector<int64_t>(world),
            .buffers = std::vector<int64_t>(world),
            .ages = std::vector<std::vector<int64_t>>(world)};
    const auto rank = [&](comm::Communicator* ranks) {
      run(asked, plan, work, ranks, traces[static_cast<size_t>(ranks ? ranks->rank() : 0)], ran);
    };
    if (world == 1)
      rank(nullptr);
    else
      comm::threads::run(plan.world(), std::chrono::seconds(60), [&](comm::Communicator& ranks) {
        const auto counted = comm::counting(ranks, ran.to[static_cast<size_t>(ranks.rank())]);
        rank(counted.get());
      });
    const auto joined = [&](const std::string& what) {
      std::vector<Tensor> parts;
      for (auto& trace : traces) parts.push_back(trace.at(what));
      return parallel::Partition(plan, work).join(parts).to_floats();
    };
    for (int step = 0; step < asked.sampler->steps(); ++step) {
      ran.predictions.push_back(joined("model_output." + std::to_string(step)));
      ran.steps.push_back(joined("latents." + std::to_string(step + 1)));
    }
    return ran;
  }
  parallel::Workload workload(const Asked& asked) const {
    parallel::Workload work{.samples = kSamples,
                            .grid = layout_.grid(),
                            .branches = asked.guided ? 2 : 1,
                            .steps = asked.sampler->steps(),
                            .prefix = model_.spec.prefix(conditioning_),
                            .rescales = asked.rescale != 0};
    work.extra = layout_.extra;
    work.prefixes = model_.spec.prefixes(conditioning_);
    if (!asked.cache.empty()) work.step_cache = parse_step_cache(asked.cache);
    return work;
  }
  int64_t latent_bytes() const {  // Bytes of a sample's prediction.
    return layout_.tokens() * layout_.token_channels() * 4;
  }
  bool joint() const { return text_ > 0 && model_.spec.prefix(conditioning_) > 0; }
  int64_t tokens() const { return layout_.tokens(); }
  int64_t extra() const { return layout_.extra; }
  const nn::Geometry& geometry() const { return model_.network->geometry(); }
  const models::PipelineSpec& spec() const { return model_.spec; }

  const std::string name;

 private:
  // Texts of all lengths.
  void add_lengths() {
    Tensor mask = Tensor::zeros({2 * kSamples, text_}, DType::i32);
    for (int64_t s = 0; s < 2 * kSamples; ++s)
      std::fill_n(mask.row<int32_t>(s), std::max<int64_t>(text_ - 11 * s, 1), 1);
    conditioning_.tensors[model_.spec.text_mask()] = mask;
  }
  // Two images beside the noise.
  void add_references() {
    const std::vector<int32_t> sides{1, 3, 2, 2};
    std::vector<int32_t> all;
    for (int s = 0; s < 2 * kSamples; ++s) all.insert(all.end(), sides.begin(), sides.end());
    layout_.extra = 1 * 3 + 2 * 2;
    conditioning_.tensors["reference_sizes"] =
        Tensor::from(std::span<const int32_t>(all), {2 * kSamples, 4});
    conditioning_.tensors["reference_tokens"] = models::NamedNoise().get(
        "reference_tokens", {2 * kSamples, layout_.extra, layout_.token_channels()});
  }
  static void note_reuse(const parallel::Setup& setup, Ran& ran) {
    const auto cfg = setup.branch_group ? setup.branch_group->rank() : 0;
    if (!setup.reuse.empty() && setup.rank == 0) ran.computed = setup.reuse[0]->log().computed;
    if (setup.reuse.size() > 1 && setup.rank == 0) ran.negative = setup.reuse[1]->log().computed;
    if (setup.same_branch && cfg == 1 && setup.same_branch->rank() == 0)
      ran.negative = setup.reuse[0]->log().computed;
  }
  static std::string deeper(const std::string& json, int more) {
    std::smatch found;
    std::regex_search(json, found, std::regex(R"(("depth"|"num_layers"|"n_layers"): (\d+))"));
    return found.prefix().str() + found[1].str() + ": " +
           std::to_string(std::stoi(found[2]) + more) + found.suffix().str();
  }
  void run(const Asked& asked, const Plan& plan, const parallel::Workload& work,
           comm::Communicator* world, std::map<std::string, Tensor>& trace, Ran& ran) const {
    const int rank = world ? world->rank() : 0;
    const auto at = static_cast<size_t>(rank);
    std::unique_ptr<nn::Denoiser> portion;
    if (plan.shard > 1)
      portion = shard_network(model_.spec, plan, geometry(), rank, dtype_);
    else if (plan.expert > 1 || plan.tensor > 1 || plan.pipefusion > 1)
      portion = model_.spec.make(models::NamedNoise(), parallel::portion_of(plan, geometry(), rank),
                                 dtype_);
    const nn::Denoiser& network = portion ? *portion : *model_.network;
    tensor::Scope scope = tensor::current_scope();
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope counted(scope);
    parallel::Setup setup(plan, network.geometry(), work, world);
    parallel::DenoiseControl control;
    control.trace = [&](const std::string& what, const Tensor& x) { trace[what] = x; };
    const Tensor whole = model_.latent(kSamples, layout_);
    const auto noise = [&](int step) {
      const std::string of_step = "noise." + std::to_string(step);
      return setup.partition.cut(models::NamedNoise().get(of_step, whole.shape()), rank);
    };
    parallel::denoise(network,
                      diffusion::take_sequences(conditioning_, setup.partition.sequences(rank)),
                      *asked.sampler,
                      {asked.guided ? 2.5f : 1, model_.spec.guided_channels,
                       asked.variances ? 0 : model_.spec.guided_channels, asked.rescale},
                      setup.partition.cut(whole, rank), noise, setup, control);
    if (world) ran.sent[at] = world->ledger();
    ran.kept[at] = scope.memory->peak(tensor::MemoryClass::kv);
    ran.buffers[at] = scope.memory->peak(tensor::MemoryClass::buffers);
    if (setup.cache) ran.ages[at] = setup.cache->ages();
    note_reuse(setup, ran);
  }

  DType dtype_;
  models::TinyModel model_;
  nn::TokenLayout layout_;
  nn::Conditioning conditioning_;
  int64_t text_;
};

}  // namespace tessera
