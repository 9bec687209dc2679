#include "diffusion/decode_pipeline.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "cluster/on_processes.h"
#include "diffusion/broadcast_conditioning.h"
#include "diffusion/encode_text.h"
#include "diffusion/failing_decoder.h"
#include "diffusion/plan_job.h"
#include "runtime/open_model.h"
#include "test_paths.h"
#include "whole/small_video.h"

// Plan::vae_apart: separate ranks decode finished samples, while the other ranks denoise.
namespace tessera {
namespace {

using golden::Scratch;

RunOptions planned(const std::string& plan, Precision precision = Precision::f32) {
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  return options;
}

GenerateRequest shapes(int count, int first = 1) {
  GenerateRequest request;
  request.classes = {std::to_string(first), std::to_string(first + 6)};
  request.count = count;
  request.steps = 2;
  request.width = request.height = 64;
  return request;
}

void expect_same(const GenerateResult& got, const GenerateResult& want, const std::string& what) {
  EXPECT_TRUE(got.latents == want.latents) << what;
  EXPECT_EQ(got.latents_shape, want.latents_shape) << what;
  EXPECT_EQ(got.steps, want.steps) << what;
  ASSERT_EQ(got.images.size(), want.images.size()) << what;
  for (size_t i = 0; i < want.images.size(); ++i) {
    EXPECT_EQ(got.images[i].label, want.images[i].label) << what;
    EXPECT_EQ(got.images[i].video, want.images[i].video) << what;
    EXPECT_EQ(got.images[i].frame, want.images[i].frame) << what;
    EXPECT_EQ(got.images[i].width, want.images[i].width) << what;
    EXPECT_TRUE(got.images[i].rgb == want.images[i].rgb) << what << ", image " << i;
  }
}

TEST(LatentExchange, GivesTheBitsOfRanksThatDecodeAfterwards) {
  const Scratch scratch;
  GenerateRequest request = shapes(2);
  const auto run = [&](const std::string& plan) {
    request.trace = scratch / "trace.safetensors";
    auto made = Model::open("shapes", planned(plan)).generate(request);
    std::map<std::string, std::vector<float>> numbers;
    const load::SafetensorsFile trace(request.trace);
    for (const auto& [name, entry] : trace.entries()) numbers[name] = trace.get(name).to_floats();
    return std::pair(std::move(made), std::move(numbers));
  };
  const std::pair<const char*, const char*> plans[] = {
      {"vae=+1", ""},
      {"vae=+2", "ulysses=2,vae=2"},
      {"cfg=2,vae=+1", "cfg=2"},
      {"data=2,vae=+3", "ulysses=3,vae=3"},
      {"data=2,cfg=2,shard=2,vae=+2", "cfg=2,vae=2"},
      {"pipefusion=2,patches=4,vae=+1", "pipefusion=2,patches=4"},
      {"expert=2,schedule=interweaved,conditional=random,vae=+1",
       "expert=2,schedule=interweaved,conditional=random"}};
  for (const auto& [apart, behind] : plans) {
    const auto [got, traced] = run(apart);
    const auto [want, numbers] = run(behind);
    expect_same(got, want, apart);
    EXPECT_TRUE(traced == numbers) << apart;
  }
}

TEST(LatentExchange, EachSampleHasItsSeed) {
  GenerateRequest request = shapes(1);
  request.seeds = {7, 3};
  expect_same(Model::open("shapes", planned("vae=+1")).generate(request),
              Model::open("shapes", planned("")).generate(request), "seeds");
}

TEST(LatentExchange, VideosComeFrameByFrame) {
  const Scratch scratch;
  GenerateRequest request = golden::small_video(scratch);
  request.count = 2;
  const auto bf16 = Precision::bf16;
  expect_same(Model::open(golden::kVideoModel, planned("ulysses=2,vae=+2", bf16)).generate(request),
              Model::open(golden::kVideoModel, planned("ulysses=2,vae=2", bf16)).generate(request),
              "video");
}

TEST(LatentExchange, ASequenceOfRequestsIsWhatEachIsAlone) {
  std::vector<GenerateRequest> requests{shapes(1), shapes(2, 3), shapes(1, 5)};
  requests[1].width = 96;
  requests[2].steps = 3;
  requests[2].seed = 9;
  for (const char* plan : {"vae=+1", "cfg=2,vae=+2", ""}) {
    const Model model = Model::open("shapes", planned(plan));
    const auto all = model.generate_all(requests);
    ASSERT_EQ(all.size(), requests.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto alone = model.generate(requests[i]);
      expect_same(all[i], alone, fmt::format("{}, request {}", plan, i));
      EXPECT_EQ(all[i].report.flops, alone.report.flops) << plan << i;
      EXPECT_TRUE(all[i].report.phase_seconds.contains(Phase::decode)) << plan << i;
      EXPECT_EQ(all[i].report.traffic.size(), alone.report.traffic.size()) << plan << i;
      for (const auto& [key, sent] : alone.report.traffic)
        EXPECT_EQ(all[i].report.traffic.at(key).bytes, sent.bytes) << key.first;
    }
    EXPECT_TRUE(model.generate_all({}).empty());
  }
}

TEST(LatentExchange, ProcessesGiveTheBitsOfThreads) {
  const std::vector<GenerateRequest> requests{shapes(1), shapes(2, 3)};
  const auto threads = Model::open("shapes", planned("cfg=2,vae=+2")).generate_all(requests);
  on_processes(4, [&](const Processes& processes) {
    RunOptions options = planned("cfg=2,vae=+2");
    options.processes = &processes;
    const auto made = Model::open("shapes", options).generate_all(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(made[i].elsewhere, processes.rank() != 0);
      if (processes.rank() != 0) continue;
      expect_same(made[i], threads[i], "processes");
      ASSERT_EQ(made[i].report.per_rank.size(), 4u);
      for (size_t r = 0; r < 4; ++r) {
        const Report::Rank &a = made[i].report.per_rank[r], &b = threads[i].report.per_rank[r];
        EXPECT_EQ(a.decode_peak_bytes.total > 0, r >= 2) << "who decodes " << r;
        EXPECT_EQ(a.peak_bytes.total > 0, r < 2) << "who denoises " << r;
        EXPECT_EQ(a.decode_flops, b.decode_flops) << r;  // bytes are shared, as these are threads
      }
    }
  });
}

// Only rank 0 is asked to stop, as by a server; afterwards all ranks do the next request.
TEST(LatentExchange, ProcessesStopTogetherAndGoOn) {
  for (const auto& [plan, ranks] : {std::pair("vae=+1", 2), std::pair("cfg=2,vae=+2", 4)}) {
    const auto want = Model::open("shapes", planned(plan)).generate(shapes(1));
    on_processes(ranks, [&, plan = plan](const Processes& processes) {
      RunOptions options = planned(plan);
      options.processes = &processes;
      const Model model = Model::open("shapes", options);
      const std::pair<Phase, int> moments[] = {// two steps each for six samples
                                               {Phase::denoise, 0},
                                               {Phase::denoise, 2},
                                               {Phase::denoise, 3},
                                               {Phase::denoise, 8},
                                               {Phase::decode, 1}};
      for (const auto& [phase, step] : moments) {
        std::stop_source stop;
        RunControl control{stop.get_token(), {}, {}};
        if (processes.rank() == 0)
          control.on_progress = [&, phase = phase, step = step](const Progress& p) {
            if (p.phase == phase && p.step >= step) stop.request_stop();
          };
        try {
          model.generate(shapes(3), control);
          ADD_FAILURE() << plan << ": rank " << processes.rank() << " went on to its end";
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::cancelled)
              << plan << ": rank " << processes.rank() << ": " << e.what();
        }
      }
      const auto made = model.generate(shapes(1));
      if (processes.rank() == 0) expect_same(made, want, plan);
    });
  }
}

TEST(LatentExchange, ProcessesAgreeOnTheNumberOfRequests) {
  const std::vector<GenerateRequest> three(3, shapes(1));
  for (const char* plan : {"vae=+1", "ulysses=2"})
    for (const size_t other : {0, 2})
      on_processes(2, [&](const Processes& processes) {
        RunOptions options = planned(plan);
        options.processes = &processes;
        const Model model = Model::open("shapes", options);
        const std::span<const GenerateRequest> all(three);
        const bool first = processes.rank() == 0;
        try {
          model.generate_all(first ? all : all.subspan(0, other));
          ADD_FAILURE() << plan << ": rank " << processes.rank() << " ran";
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::rank);
          EXPECT_NE(std::string(e.what()).find(fmt::format(
                        "the number of requests of rank 1 is '{}', of rank 0 '3'", other)),
                    std::string::npos)
              << e.what();
        }
        EXPECT_TRUE(model.generate_all({}).empty());
      });
}

// While a slow sample is denoised, the previous sample is decoded: in the end only the last sample
// is left.
TEST(LatentExchange, ImagesAreDecodedWhileOthersAreDenoised) {
  GenerateRequest request = shapes(2);
  request.width = request.height = 384;
  request.steps = 1;
  const auto left = [&](const char* plan, int threads) {
    RunControl control;
    control.on_progress = [](const Progress& p) {
      if (p.phase == Phase::denoise) std::this_thread::sleep_for(std::chrono::seconds(1));
    };
    RunOptions options = planned(plan);
    options.threads = threads;  // the decoder gets a single thread
    return Model::open("shapes", options)
        .generate(request, control)
        .report.phase_seconds.at(Phase::decode);
  };
  double ratio = 1;
  for (int tries = 0; tries < 4 && ratio > 0.6; ++tries) ratio = left("vae=+1", 2) / left("", 1);
  EXPECT_LT(ratio, 0.6) << "one of four images is left";
}

// The error of the run.
Error ended(const std::string& plan, const std::function<void(const Progress&)>& see,
            std::stop_token stop = {}) {
  const Scratch scratch;
  GenerateRequest request = shapes(4);
  request.save_latents = scratch / "left.safetensors";
  try {
    Model::open("shapes", planned(plan)).generate(request, {std::move(stop), see, {}});
  } catch (const Error& e) {
    EXPECT_FALSE(std::filesystem::exists(request.save_latents)) << plan;
    return e;
  }
  ADD_FAILURE() << plan << " went on to its end";
  return Error(ErrorCode::usage, "none");
}

TEST(LatentExchange, AStopEndsBothHalves) {
  for (const char* plan : {"vae=+1", "vae=+2", "cfg=2,vae=+2"})
    for (const Phase phase : {Phase::load, Phase::denoise, Phase::decode}) {
      std::stop_source stop;
      int seen = 0;
      const Error error = ended(
          plan,
          [&](const Progress& p) {
            if (p.phase == phase && (phase != Phase::denoise || ++seen == 6)) stop.request_stop();
          },
          stop.get_token());
      EXPECT_EQ(error.code(), ErrorCode::cancelled) << plan << ": " << error.what();
    }
}

// A model with NaN from the last filter of its decoder.
std::string broken_decoder(const Scratch& scratch) {
  std::string broken = scratch / "model";
  std::filesystem::copy(TESSERA_MODELS_DIR "/shapes", broken,
                        std::filesystem::copy_options::recursive);
  const std::string file = broken + "/vae/diffusion_pytorch_model.safetensors";
  std::map<std::string, tensor::Tensor> tensors;
  {
    const load::SafetensorsFile in(file);
    for (const auto& [name, entry] : in.entries()) tensors[name] = in.get(name).contiguous();
  }
  tensor::Tensor& bias = tensors.at("decoder.conv_out.bias");
  const std::vector<float> none(static_cast<size_t>(bias.elements()), NAN);
  bias = tensor::Tensor::from(std::span<const float>(none), bias.shape());
  load::write_safetensors(file, tensors);
  return broken;
}

// A decoder's error reaches rank 0 and all others with the decoder's number; ranks stay in step, so
// the next request ends in the same way.
TEST(LatentExchange, ADecodersErrorIsThatOfAllProcesses) {
  const Scratch scratch;
  const std::string broken = broken_decoder(scratch);
  const std::tuple<const char*, int, const char*> plans[] = {
      {"cfg=2,vae=+1", 3, "rank 2, which decodes: the VAE's end of the model gives"},
      {"cfg=2,vae=+2", 4, "rank 2, which decodes: the VAE's end of the model gives"},
      {"ulysses=3,vae=3", 3, "the VAE's end of the model gives"}};
  for (const auto& [plan, ranks, says] : plans)
    on_processes(ranks, [&, plan = plan, says = says](const Processes& processes) {
      RunOptions options = planned(plan);
      options.processes = &processes;
      const Model model = Model::open(broken, options);
      for (const int count : {1, 3}) {
        try {
          model.generate(shapes(count));
          ADD_FAILURE() << plan << ": rank " << processes.rank() << " went on";
        } catch (const Error& e) {
          const std::string said = e.what();
          EXPECT_EQ(e.code(), ErrorCode::model) << said;
          EXPECT_TRUE(said.starts_with(says)) << plan << ": " << said;
        }
      }
    });
}

// A file is truncated on a single rank after the request has begun: all ranks end, and stay in
// step.
TEST(LatentExchange, ARankThatCannotLoadEndsAllByItsName) {
  struct Cut {
    const char *model, *plan, *part, *does;
    int ranks, victim;
  };
  const Cut cuts[] = {{"shapes", "cfg=2,vae=+1", "vae", "decodes", 3, 2},
                      {"shapes", "cfg=2,vae=+2", "vae", "decodes", 4, 3},
                      {"shapes", "ulysses=3,vae=3", "vae", "decodes", 3, 2},
                      {"scenes", "ulysses=2,vae=+1", "vae", "decodes", 3, 2},
                      {"scenes", "ulysses=2,vae=+1", "transformer", "denoises", 3, 1},
                      {"scenes", "ulysses=2", "transformer", "denoises", 2, 1}};
  for (const Cut& cut : cuts)
    on_processes(cut.ranks, [&](const Processes& processes) {
      const Scratch scratch;
      const std::string folder = scratch / "model";
      std::filesystem::copy(std::string(TESSERA_MODELS_DIR "/") + cut.model, folder,
                            std::filesystem::copy_options::recursive);
      RunOptions options = planned(cut.plan);
      options.processes = &processes;
      const Model model = Model::open(folder, options);
      RunControl control;
      control.on_progress = [&](const Progress& p) {
        if (p.phase == Phase::load && processes.rank() == cut.victim)
          std::filesystem::resize_file(
              folder + "/" + cut.part + "/diffusion_pytorch_model.safetensors", 9000);
      };
      GenerateRequest request = shapes(1);
      if (cut.model == std::string("scenes")) {
        request.classes = {};
        request.prompts = {"a red circle"};
      }
      try {
        model.generate(request, control);
        ADD_FAILURE() << cut.plan << ": rank " << processes.rank() << " went on";
      } catch (const Error& e) {
        const std::string said = e.what();
        EXPECT_EQ(e.code(), ErrorCode::model) << said;
        EXPECT_TRUE(said.starts_with(fmt::format("rank {}, which {}: ", cut.victim, cut.does)))
            << said;
        EXPECT_NE(said.find("diffusion_pytorch_model"), std::string::npos) << said;
      }
      EXPECT_TRUE(model.generate_all({}).empty()) << "they still hear each other";
    });
}

// The error in this process when the last decoder fails alone.
Error halved(const std::string& plan, const Processes* processes) {
  RunOptions options = planned(plan);
  options.processes = processes;
  options.comm_timeout = std::chrono::minutes(5);
  runtime::ModelState state;
  runtime::open_model("shapes", options, state);
  const GenerateRequest request = shapes(1);
  std::deque<diffusion::QueuedRequest> orders;
  diffusion::Job& job = orders.emplace_back(request, diffusion::plan_job(state, request)).job;
  diffusion::encode_text(state, request, {}, job);
  diffusion::load_ranks(state, job);
  diffusion::broadcast_conditioning(state, job);
  for (const nn::Range samples : diffusion::parts_of(options.plan, job.samples()))
    orders[0].parts.push_back(diffusion::part_of(job, samples));
  diffusion::SharedDecoder decoder = diffusion::load_decoder(state, job, job.counted.meters.memory);
  decoder.decoder = std::make_unique<FailingDecoder>(std::move(decoder.decoder));
  try {
    diffusion::run_stages(state, {}, orders, decoder);
  } catch (const Error& e) {
    return e;
  }
  return {ErrorCode::usage, "nothing was thrown"};
}

// The other ranks end at once, wherever they wait; processes behave as under a server, which
// continues after an error.
TEST(LatentExchange, ADecoderThatFailsAloneEndsTheOthersByItsName) {
  const auto expect_named = [](const Error& error, const std::string& plan, int last) {
    EXPECT_EQ(error.code(), ErrorCode::memory) << plan << ": " << error.what();
    EXPECT_EQ(error.what(), fmt::format("rank {}, which decodes: {}", last, FailingDecoder::kSaid))
        << plan;
  };
  for (const auto& [plan, ranks] : {std::pair("vae=+2", 3), std::pair("cfg=2,vae=+3", 5)}) {
    expect_named(halved(plan, nullptr), plan, ranks - 1);
    on_processes(ranks, [&, plan = plan, ranks = ranks](const Processes& processes) {
      for (int i = 0; i < 2; ++i) expect_named(halved(plan, &processes), plan, ranks - 1);
    });
  }
}

TEST(LatentExchange, AnErrorInEitherHalfEndsBothAndIsTold) {
  const Scratch scratch;
  const std::string broken = broken_decoder(scratch);
  for (const char* plan : {"vae=+1", "cfg=2,vae=+2"}) {
    try {
      Model::open(broken, planned(plan)).generate(shapes(4));
      ADD_FAILURE() << plan << " went on";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model) << e.what();
      EXPECT_NE(std::string(e.what()).find("VAE"), std::string::npos) << e.what();
    }
    const Error thrown = ended(plan, [](const Progress& p) {
      if (p.phase == Phase::denoise && p.step == 3) throw Error(ErrorCode::model, "of a callback");
    });
    EXPECT_EQ(thrown.code(), ErrorCode::model);
    EXPECT_STREQ(thrown.what(), "of a callback");
  }
}

TEST(LatentExchange, RefusesBeforeAWeightIsRead) {
  const auto refused = [](const std::string& plan, const GenerateRequest& request,
                          const std::string& why) {
    try {
      Model::open("shapes", planned(plan)).generate(request);
      ADD_FAILURE() << plan << " ran";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan) << e.what();
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  GenerateRequest latents = shapes(1);
  latents.decode = false;
  refused("vae=+1", latents, "vae=+1 shares out the decoding of images, and nothing is decoded");
  refused("vae=+9", shapes(1), "a latent has 8 lines");
  GenerateRequest tiles = shapes(1);
  tiles.vae_tiling = VaeTiling::on;
  refused("vae=+2", tiles, "leave out one of the two");
  ForwardRequest part;
  part.component = ModelPart::vae_decode;
  try {
    Model::open("shapes", planned("vae=+2")).forward(part);
    ADD_FAILURE() << "forward ran";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("use vae=2 on the ranks of an axis"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
