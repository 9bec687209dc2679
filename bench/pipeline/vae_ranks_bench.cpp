// Compares an image decoded by ranks with a thread each that share the lines (vae=K) to a single
// rank: the sizes of Stable Diffusion's VAE, random weights, ranks that are threads, so links are
// free.
//   vae_ranks_bench [rounds] [shape: 512x512-bf16, 1024x1024-bf16, ...] [ranks: 2,4,8]
// In each round a single rank decodes, then every number of ranks. Prints a JSON line for each
// number: medians over the rounds of the wall time, and of the CPU time and the FLOPs of the
// busiest
// rank, each relative to the single rank of the same round. K times such a share is 1 without
// losses; the share of the wall time is meaningful only on K cores, the share of the CPU time is a
// lower bound for K cores.
#include <ctime>
#include <sstream>
#include <string>

#include "bench.h"
#include "comm/threads/launch.h"
#include "models/random_weights.h"
#include "models/vae/autoencoder_kl.h"
#include "nn/local_spatial.h"
#include "parallel/spatial/bands.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Cost {
  double wall = 0, cpu = 0, flops = 0;  // seconds of all ranks; of the busiest rank
};

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// Decodes on this thread, standing for a core.
Cost decode(const models::VaeDecoder& vae, const Tensor& latents, nn::Spatial& spatial) {
  base::ThreadPool single_thread(1);
  tensor::Scope scope;
  scope.pool = &single_thread;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const double begin = now(CLOCK_THREAD_CPUTIME_ID);
  vae.decode(latents, spatial);
  return {0, now(CLOCK_THREAD_CPUTIME_ID) - begin, scope.meter->total().flops};
}

Cost timed(int ranks, const models::VaeDecoder& vae, const Tensor& latents) {
  std::vector<Cost> rank_costs(static_cast<size_t>(ranks));
  const double begin = now(CLOCK_MONOTONIC);
  if (ranks == 1) {
    nn::LocalSpatial whole;
    rank_costs[0] = decode(vae, latents, whole);
  } else {
    comm::threads::run(ranks, std::chrono::minutes(10), [&](comm::Communicator& world) {
      parallel::Bands bands(world);
      rank_costs[static_cast<size_t>(world.rank())] = decode(vae, latents, bands);
    });
  }
  Cost total{now(CLOCK_MONOTONIC) - begin};
  for (const Cost& rank : rank_costs) {
    total.cpu = std::max(total.cpu, rank.cpu);
    total.flops = std::max(total.flops, rank.flops);
  }
  return total;
}

void print(const std::string& shape, int ranks, const std::vector<Cost>& single,
           const std::vector<Cost>& many) {
  const auto median_of = [&](auto value) {
    std::vector<double> values;
    for (size_t i = 0; i < single.size(); ++i) values.push_back(value(single[i], many[i]));
    return bench::median(values);
  };
  const double wall = median_of([](Cost a, Cost b) { return b.wall / a.wall; });
  const double cpu = median_of([](Cost a, Cost b) { return b.cpu / a.cpu; });
  std::puts(fmt::format("{{\"bench\":\"vae_ranks\",\"shape\":\"{}\",\"ranks\":{},\"rounds\":{},"
                        "\"one_ms\":{:.1f},\"ms\":{:.1f},\"wall_share_times_ranks\":{:.3f},"
                        "\"one_cpu_ms\":{:.1f},\"busiest_cpu_ms\":{:.1f},"
                        "\"cpu_share_times_ranks\":{:.3f},\"flops_share_times_ranks\":{:.3f}}}",
                        shape, ranks, single.size(),
                        1e3 * median_of([](Cost a, Cost) { return a.wall; }),
                        1e3 * median_of([](Cost, Cost b) { return b.wall; }), wall * ranks,
                        1e3 * median_of([](Cost a, Cost) { return a.cpu; }),
                        1e3 * median_of([](Cost, Cost b) { return b.cpu; }), cpu * ranks,
                        ranks * many[0].flops / single[0].flops)
                .c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::string shape = argc > 2 ? argv[2] : "512x512-bf16";
  int64_t height = 0, width = 0;
  std::vector<int> counts;
  std::istringstream list(argc > 3 ? argv[3] : "2,4,8");
  for (std::string count; std::getline(list, count, ',');)
    counts.push_back(std::atoi(count.c_str()));
  const bool sized = std::sscanf(shape.c_str(), "%ldx%ld", &height, &width) == 2 && height > 0 &&
                     width > 0 && height % 8 == 0 && width % 8 == 0;
  const auto runs = [&](int ranks) { return ranks > 1 && ranks <= height / 8; };
  if (rounds < 1 || !sized || !std::all_of(counts.begin(), counts.end(), runs))
    return std::fputs(
               "vae_ranks_bench: give rounds, a shape like 512x512-bf16, and numbers of "
               "ranks like 2,4,8\n",
               stderr),
           2;
  models::AutoencoderKLConfig config;
  config.block_out_channels = {128, 256, 512, 512};
  config.layers_per_block = 2;
  const DType dtype = shape.ends_with("f32") ? DType::f32 : DType::bf16;
  const models::AutoencoderKL vae(config, bench::RandomWeights(), dtype);
  const Tensor latents = bench::RandomWeights().get("", {1, 4, height / 8, width / 8});
  timed(1, vae, latents);  // caches filters derived by the kernels
  std::vector<Cost> single;
  std::vector<std::vector<Cost>> many(counts.size());
  for (int round = 0; round < rounds; ++round) {
    single.push_back(timed(1, vae, latents));
    for (size_t i = 0; i < counts.size(); ++i) many[i].push_back(timed(counts[i], vae, latents));
  }
  for (size_t i = 0; i < counts.size(); ++i) print(shape, counts[i], single, many[i]);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
