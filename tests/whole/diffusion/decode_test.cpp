#include "diffusion/decode.h"

#include <cmath>
#include <cstdlib>
#include <mutex>

#include "cluster/on_processes.h"
#include "diffusion/failing_decoder.h"
#include "diffusion/launch_bands.h"
#include "diffusion/plan_job.h"
#include "runtime/open_model.h"
#include "test_paths.h"
#include "whole/small_video.h"

namespace tessera {
namespace {

TEST(Decode, AnImageOfEachLatentWithItsLabel) {
  Model model = Model::open("shapes", golden::options(Precision::f32));
  GenerateRequest request;
  request.classes = {"1", "2"};
  request.steps = 1;
  int last = -1;
  const GenerateResult result =
      model.generate(request, {.stop = {}, .on_progress = [&](const Progress& p) {
                                 if (p.phase == Phase::decode) last = p.step;
                               }});
  ASSERT_EQ(result.images.size(), 2u);
  EXPECT_NE(result.images[0].label, result.images[1].label);
  EXPECT_EQ(result.images[0].video, -1);
  EXPECT_EQ(last, 2);
  EXPECT_EQ(result.steps, 1);
}

double psnr(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
  return 10 * std::log10(255.0 * 255.0 * double(a.size()) / std::max(sum, 1e-9));
}

TEST(Decode, TilesKeepTheImage) {
  GenerateRequest request;
  request.classes = {"1", "7"};
  request.steps = 6;
  const RunOptions options = golden::options(Precision::bf16);
  const auto whole = Model::open("shapes", options).generate(request);
  request.vae_tiling = VaeTiling::on;
  request.vae_tile = 96;
  const auto tiled = Model::open("shapes", options).generate(request);
  EXPECT_EQ(tiled.latents, whole.latents);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(tiled.images[i].width, whole.images[i].width);
    EXPECT_GT(psnr(tiled.images[i].rgb, whole.images[i].rgb), 18);
  }
}

TEST(Decode, AVideoIsItsFrames) {
  if (!std::filesystem::exists(golden::kVideoModel + "/model_index.json"))
    FAIL() << golden::kVideoModel << " is not whole";
  const golden::Scratch scratch;
  GenerateRequest request = golden::small_video(scratch);
  request.count = 2;
  const auto result =
      Model::open(golden::kVideoModel, golden::options(Precision::bf16)).generate(request);
  ASSERT_EQ(result.images.size(), 18u);
  EXPECT_EQ(result.images[10].video, 1);
  EXPECT_EQ(result.images[10].frame, 1);
  EXPECT_EQ(result.images[10].width, 32);
}

RunOptions planned(const std::string& plan, Precision precision = Precision::f32) {
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  return options;
}

GenerateRequest two_shapes() {
  GenerateRequest request;
  request.classes = {"1", "7"};
  request.steps = 2;
  return request;
}

void expect_alike(const GenerateResult& many, const GenerateResult& one, const std::string& what) {
  EXPECT_EQ(many.latents, one.latents) << what;
  ASSERT_EQ(many.images.size(), one.images.size()) << what;
  for (size_t i = 0; i < one.images.size(); ++i) {
    EXPECT_EQ(many.images[i].label, one.images[i].label);
    EXPECT_EQ(many.images[i].frame, one.images[i].frame);
    ASSERT_EQ(many.images[i].rgb.size(), one.images[i].rgb.size()) << what;
    for (size_t p = 0; p < one.images[i].rgb.size(); ++p)  // a rounding apart at most
      ASSERT_LE(std::abs(many.images[i].rgb[p] - one.images[i].rgb[p]), 1) << what << ' ' << p;
  }
}

TEST(DecodeInBands, GivesTheImagesOfOneRank) {
  const golden::Scratch scratch;
  GenerateRequest request = two_shapes();
  const auto numbers = [&] {
    return load::SafetensorsFile(request.trace).get("image").to_floats();
  };
  request.trace = scratch / "one.safetensors";
  const auto one = Model::open("shapes", planned("")).generate(request);
  const auto want = numbers();
  for (const char* plan : {"ulysses=2,vae=2", "cfg=2,ulysses=2,vae=3", "cfg=2,ulysses=3,vae=5",
                           "data=2,cfg=2,ulysses=2,vae=7", "cfg=2,ulysses=4,vae=8"}) {
    request.trace = scratch / "many.safetensors";
    expect_alike(Model::open("shapes", planned(plan)).generate(request), one, plan);
    EXPECT_LT(golden::max_error(numbers(), want), 1e-5) << plan;
  }
  request.trace.clear();
  request.width = 208, request.height = 112;
  const auto odd = Model::open("shapes", planned("")).generate(request);
  for (const char* plan : {"ulysses=3,vae=3", "cfg=2,ulysses=3,vae=5", "cfg=2,ulysses=4,vae=7"})
    expect_alike(Model::open("shapes", planned(plan)).generate(request), odd, plan);
}

TEST(DecodeInBands, GivesTheVideosOfOneRank) {
  const golden::Scratch scratch;
  GenerateRequest request = golden::small_video(scratch, 17);
  request.count = 2;
  const auto one = Model::open(golden::kVideoModel, planned("")).generate(request);
  for (const char* plan : {"ulysses=2,vae=2", "ulysses=3,vae=3", "data=2,ulysses=2,vae=4"})
    expect_alike(Model::open(golden::kVideoModel, planned(plan)).generate(request), one, plan);
}

TEST(DecodeInBands, ProcessesGiveTheBytesOfThreads) {
  const auto threads =
      Model::open("shapes", planned("cfg=2,ulysses=2,vae=3")).generate(two_shapes());
  std::mutex mutex;
  int others = 0;
  on_processes(4, [&](const Processes& processes) {
    RunOptions options = planned("cfg=2,ulysses=2,vae=3");
    options.processes = &processes;
    const Model model = Model::open("shapes", options);
    for (int round = 0; round < 2; ++round) {  // the ranks stay in step
      const auto result = model.generate(two_shapes());
      const std::lock_guard lock(mutex);
      others += result.elsewhere ? 1 : 0;
      if (result.elsewhere) continue;
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(result.images[i].rgb, threads.images[i].rgb);
      // Weights are not compared: these processes share a store.
      const MemoryPeaks &held = result.report.per_rank[2].decode_peak_bytes,
                        &alike = threads.report.per_rank[2].decode_peak_bytes;
      EXPECT_EQ(held.activations, alike.activations);
      EXPECT_EQ(held.buffers, alike.buffers);
      EXPECT_EQ(result.report.traffic.at({"halo", -1}).bytes,
                threads.report.traffic.at({"halo", -1}).bytes);
      EXPECT_EQ(result.report.flops, threads.report.flops);
    }
  });
  EXPECT_EQ(others, 6);
}

// The formulas of docs/plans.md, for the VAE of shapes: 16 x 16 latents of 4 channels, widths 64,
// 32, 16 and 8, two resnets a level.
TEST(DecodeInBands, RanksSendWhatTheFormulasSay) {
  struct Level {
    int64_t width;
    std::vector<int64_t> filters;  ///< input channels of the 3 x 3 filters
  };
  const Level levels[] = {{16, {4, 64, 64, 64, 64, 64, 64, 64, 64, 64}},
                          {32, {64, 32, 32, 32, 32}},
                          {64, {32, 16, 16, 16, 16}},
                          {128, {16, 8, 8, 8, 8}}};
  int64_t line = 0, filters = 0;
  for (const Level& level : levels)
    for (const int64_t channels : level.filters) line += level.width * channels * 2, ++filters;
  int64_t normed = 4 * 64 + 64 + 4 * 64 + (64 + 3 * 32) + (32 + 3 * 16) + (16 + 3 * 8) + 8;
  for (const int64_t K : {2, 3, 4, 7}) {
    const std::string plan = fmt::format("cfg=2,ulysses=4,vae={}", K);
    const auto result =
        Model::open("shapes", planned(plan, Precision::bf16)).generate(two_shapes());
    const auto sent = [&](const char* operation) {
      const Report::Traffic& t = result.report.traffic.at({operation, -1});
      return std::pair(t.messages, t.bytes);
    };
    const auto all = [](int64_t messages, int64_t bytes) {  // totals for two images
      return std::pair(2 * messages, 2 * bytes);
    };
    int64_t image = 0;  // from all ranks but the first, 8 lines for a latent line
    for (int64_t r = 1; r < K; ++r) image += (16 * (r + 1) / K - 16 * r / K) * 8 * 128 * 3 * 4;
    EXPECT_EQ(sent("halo"), all(2 * (K - 1) * filters, 2 * (K - 1) * line)) << plan;
    EXPECT_EQ(sent("norm"), all(K * (K - 1) * 22, K * (K - 1) * 8 * normed)) << plan;
    EXPECT_EQ(sent("keys"), all(2 * K * (K - 1), (K - 1) * 2 * 2 * 256 * 64)) << plan;
    EXPECT_EQ(sent("image"), all(K - 1, image)) << plan;
    EXPECT_EQ(sent("latents"), all(K - 1, (K - 1) * 4 * 4 * 256)) << plan;
    if (K != 4) continue;  // for the K of the document
    EXPECT_EQ(sent("halo").second, 2 * 332'544);
    EXPECT_EQ(sent("norm").second, 2 * 82'944);
    EXPECT_EQ(sent("keys").second, 2 * 196'608);
    EXPECT_EQ(sent("image").second, 2 * 147'456);
  }
}

TEST(DecodeInBands, RefusesBeforeAWeightIsRead) {
  const auto refused = [](const std::string& folder, const std::string& plan,
                          const GenerateRequest& request, const char* says) {
    bool reads = false;
    try {
      Model::open(folder, planned(plan)).generate(request, {.on_progress = [&](const Progress&) {
                                                    reads = true;
                                                  }});
      ADD_FAILURE() << plan << " ran";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan) << e.what();
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
      EXPECT_FALSE(reads) << plan;
    }
  };
  GenerateRequest request = two_shapes();
  refused("shapes", "vae=2", request,
          "vae=2: that many of the plan's ranks decode an image, and it has 1");
  refused("shapes", "ulysses=2,vae=3", request, "use vae=2 or less");
  request.vae_tiling = VaeTiling::on;
  refused("shapes", "ulysses=2,vae=2", request, "leave out one of the two");
  request = two_shapes();
  request.decode = false;
  refused("shapes", "ulysses=2,vae=2", request, "nothing is decoded here");
  refused(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", "ulysses=2,vae=2", request,
          "decode with a model that has a VAE");
  request = two_shapes();
  request.width = request.height = 16;
  refused("shapes", "ring=2,ulysses=2,vae=4", request, "a latent has 2 lines");
}

// The error in this process when the last of three decoders fails alone.
Error shared_out(const Processes* processes) {
  RunOptions options = planned("ulysses=3,vae=3");
  options.processes = processes;
  options.comm_timeout = std::chrono::minutes(5);
  runtime::ModelState state;
  runtime::open_model("shapes", options, state);
  const diffusion::Job job = diffusion::plan_job(state, two_shapes());
  const FailingDecoder decoder(state.load_vae());
  const auto tokens = tensor::Tensor::zeros(
      {job.samples() * job.planned.layout.tokens(), job.planned.layout.token_channels()},
      tensor::DType::f32);
  try {
    diffusion::launch_bands(state, job.counted.meters, {}, 0,
                            [&](nn::Spatial& spatial, comm::Communicator* ranks) {
                              diffusion::decode_share(state, {}, job, {}, tokens, decoder, spatial,
                                                      ranks, ranks->rank(), false);
                            });
  } catch (const Error& e) {
    return e;
  }
  return {ErrorCode::usage, "nothing was thrown"};
}

// The others end at once, and not at the deadline.
TEST(DecodeInBands, ADecoderThatFailsAloneEndsTheOthersByItsName) {
  const auto expect_named = [](const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory) << error.what();
    EXPECT_EQ(error.what(), std::string("rank 2, which decodes: ") + FailingDecoder::kSaid);
  };
  expect_named(shared_out(nullptr));
  on_processes(3, [&](const Processes& processes) {
    for (int i = 0; i < 2; ++i) expect_named(shared_out(&processes));
  });
}

TEST(DecodeInBands, StopsWhenItIsAsked) {
  std::stop_source source;
  GenerateRequest request = two_shapes();
  try {
    Model::open("shapes", planned("ulysses=3,vae=3"))
        .generate(request, {.stop = source.get_token(), .on_progress = [&](const Progress& p) {
                              if (p.phase == Phase::decode) source.request_stop();
                            }});
    ADD_FAILURE() << "went on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
  }
}

}  // namespace
}  // namespace tessera
