#include "model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "arrays.h"
#include "aside.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;

const std::string kExact = "blocks=bf16";  // a rule: a file's own numbers

std::stop_token token_of(const CancelToken* cancel) {
  return cancel ? cancel->source.get_token() : std::stop_token();
}

RunOptions run_options(const OpenOptions& o) {
  RunOptions run;
  run.precision = choice_of<Precision>(o.dtype, "dtype");
  run.quantise_rules = o.quantise_rules;
  if (o.exact_quants) run.quantise_rules += run.quantise_rules.empty() ? kExact : "," + kExact;
  run.device = parse_device(o.device);
  run.threads = o.threads;
  run.plan = parse_plan(o.plan);
  run.memory_budget = o.memory_budget;
  run.keep_parts = o.keep_parts;
  run.map_weights = o.map_weights;
  if (!(o.comm_timeout >= 0.01 && o.comm_timeout <= 86400))
    throw Error(ErrorCode::usage, "comm_timeout: expected seconds from 0.01 to 86400");
  run.comm_timeout = std::chrono::milliseconds(std::llround(o.comm_timeout * 1000));
  if (o.ranks == 0) return run;
  std::string sentences;
  for (const std::string& sentence : problems(run.plan, o.ranks))
    sentences += (sentences.empty() ? "" : "; ") + sentence;
  if (!sentences.empty()) throw Error(ErrorCode::plan, "the plan cannot run: " + sentences);
  return run;
}

// Hands sentences to a Python callable.
std::function<void(const std::string&)> note_to(const nb::object& listener, const Ask& ask) {
  if (listener.is_none()) return {};
  return [&listener, &ask](const std::string& sentence) { ask([&] { listener(sentence); }); };
}

nb::list arrays_of(const std::vector<Image>& images, const nb::object& owner) {
  nb::list result;
  for (const Image& image : images) {
    const size_t shape[] = {static_cast<size_t>(image.height), static_cast<size_t>(image.width), 3};
    const nb::ndarray<nb::numpy, const uint8_t> pixels(image.rgb.data(), 3, shape, owner);
    result.append(nb::make_tuple(pixels, image.label, image.video, image.frame));
  }
  return result;
}

nb::object previews_of(std::vector<Image> images) {
  auto* const storage = new std::vector<Image>(std::move(images));
  const nb::capsule owner(storage,
                          [](void* p) noexcept { delete static_cast<std::vector<Image>*>(p); });
  return arrays_of(*storage, owner);
}

// A step's callback gets latents and previews only if the caller wants them.
struct StepWatch {
  nb::object on_step = nb::none();
  bool latents = false, previews = false;
};

void tell(const StepWatch& watch, const Ask& ask, const Progress& p) {
  if (p.phase != Phase::denoise || p.step == 0) return;
  std::optional<TensorData> latents;
  std::optional<std::vector<Image>> previews;
  if (watch.latents) latents = p.latents();
  if (watch.previews) previews = p.preview();
  ask([&] {
    nb::dict values;
    if (latents) values["latents"] = array_of(std::move(*latents));
    if (previews) values["previews"] = previews_of(std::move(*previews));
    watch.on_step(p.step - 1, p.timestep, values);
  });
}

GenerateResult generate(const OpenModel& model, GenerateRequest request, const nb::dict& initial,
                        StepWatch watch, const nb::object& on_note, const CancelToken* cancel) {
  const Inputs inputs = inputs_of(initial);
  request.initial_tensors = inputs.views;
  GenerateResult result;
  run_aside(token_of(cancel), [&](const std::stop_token& stop, const Ask& ask) {
    RunControl control{stop, {}, note_to(on_note, ask)};
    if (!watch.on_step.is_none())
      control.on_progress = [&](const Progress& p) { tell(watch, ask, p); };
    result = model.use().generate(request, control);
  });
  return result;
}

// Requests are copies: while Python runs on, another thread may set the fields of its own.
std::string complete(const OpenModel& model, CompleteRequest request, const nb::object& on_progress,
                     const nb::object& on_note, const CancelToken* cancel, PrefixCache* prefix) {
  std::string json;
  run_aside(token_of(cancel), [&](const std::stop_token& stop, const Ask& ask) {
    CompleteControl control{stop, {}, note_to(on_note, ask), prefix};
    if (!on_progress.is_none())
      control.on_progress = [&](const CompleteProgress& p) {
        ask([&] { on_progress(p.prompt, p.text, p.block, p.from, p.ended); });
      };
    json = to_json(model.use().complete(request, control));
  });
  return json;
}

struct ForwardOptions {
  std::string component;
  bool trace = false;
  std::string moe;
  bool vae_tiling = false;
  int64_t vae_tile = 0, vae_chunk = 0;
};

nb::dict forward(const OpenModel& model, const ForwardOptions& o, const nb::dict& arrays,
                 const nb::object& on_note, const CancelToken* cancel) {
  const Inputs inputs = inputs_of(arrays);
  ForwardRequest request;
  request.component = choice_of<ModelPart>(o.component, "component");
  request.tensors = inputs.views;
  request.trace = o.trace;
  if (!o.moe.empty()) request.moe = parse_moe_layer(o.moe);
  request.vae_tiling = o.vae_tiling ? VaeTiling::on : VaeTiling::off;
  request.vae_tile = o.vae_tile;
  request.vae_chunk = o.vae_chunk;
  NamedTensors tensors;
  run_aside(token_of(cancel), [&](const std::stop_token& stop, const Ask& ask) {
    tensors = model.use().forward(request, {stop, {}, note_to(on_note, ask)});
  });
  nb::dict outputs;
  for (auto& [name, tensor] : tensors) outputs[name.c_str()] = array_of(std::move(tensor));
  return outputs;
}

std::string inspect(const OpenModel& model, GenerateRequest request) {
  std::string json;
  run_aside({}, [&](const std::stop_token& stop, const Ask&) {
    json = to_json(model.use().inspect(request, stop));
  });
  return json;
}

std::string tokenize(const OpenModel& model, TokenizeRequest request) {
  std::string json;
  run_aside({}, [&](const std::stop_token& stop, const Ask&) {
    json = to_json(model.use().tokenize(request, stop), stop);
  });
  return json;
}

std::vector<std::string> save(const GenerateResult& result, const GenerateRequest& request,
                              const std::string& model, const std::string& path,
                              std::optional<double> frame_rate, bool overwrite) {
  std::vector<std::string> names;
  const std::vector<Sample> samples = samples_of(result, request, model);
  const bool videos = !samples.empty() && samples[0].is_video();
  const RunOutput output{"path", path, videos ? FileKind::video : FileKind::image,
                         static_cast<int64_t>(samples.size())};
  run_aside({}, [&](const std::stop_token& stop, const Ask&) {
    const auto add = [&](const std::string& name) { names.push_back(name); };
    check_files({model, {}, {output}, overwrite});
    save_samples(samples, path, {frame_rate, overwrite, add}, stop);
  });
  return names;
}

nb::object latents_of(const GenerateResult& result) {
  TensorData data{ElementType::f32, result.latents_shape, {}};
  const auto* const bytes = reinterpret_cast<const std::byte*>(result.latents.data());
  data.bytes.assign(bytes, bytes + result.latents.size() * sizeof(float));
  return array_of(std::move(data));
}

void bind_result(nb::module_& module) {
  nb::class_<GenerateResult>(module, "GenerateResult")
      .def_prop_ro("images",
                   [](const nb::handle_t<GenerateResult>& self) {
                     return arrays_of(nb::cast<const GenerateResult&>(self).images,
                                      nb::borrow(self));
                   })
      .def_prop_ro("latents", latents_of)
      .def("save", save, nb::arg("request"), nb::arg("model"), nb::arg("path"),
           nb::arg("frame_rate") = nb::none(), nb::arg("overwrite") = false)
      .def_prop_ro("report", [](const GenerateResult& r) { return to_json(r.report); })
      .def_ro("steps", &GenerateResult::steps)
      .def_ro("guidance", &GenerateResult::guidance)
      .def_ro("sampler", &GenerateResult::sampler);
}

void bind_options(nb::module_& module) {
  nb::class_<OpenOptions>(module, "OpenOptions")
      .def(nb::init<>())
      .def_rw("dtype", &OpenOptions::dtype)
      .def_rw("quantise_rules", &OpenOptions::quantise_rules)
      .def_rw("exact_quants", &OpenOptions::exact_quants)
      .def_rw("device", &OpenOptions::device)
      .def_rw("plan", &OpenOptions::plan)
      .def_rw("threads", &OpenOptions::threads)
      .def_rw("ranks", &OpenOptions::ranks)
      .def_rw("memory_budget", &OpenOptions::memory_budget)
      .def_rw("comm_timeout", &OpenOptions::comm_timeout)
      .def_rw("keep_parts", &OpenOptions::keep_parts)
      .def_rw("map_weights", &OpenOptions::map_weights)
      .def_rw("transformer", &OpenOptions::transformer)
      .def_rw("text_encoders", &OpenOptions::text_encoders)
      .def_rw("vae", &OpenOptions::vae)
      .def_rw("preview_vae", &OpenOptions::preview_vae);
}

}  // namespace

OpenModel::OpenModel(const std::string& model, const OpenOptions& options,
                     const CancelToken* cancel)
    : process_(getpid()) {
  const RunOptions run = run_options(options);
  const WeightFiles files{options.transformer, options.text_encoders, options.vae,
                          options.preview_vae};
  run_aside(token_of(cancel), [&](const std::stop_token& stop, const Ask&) {
    model_ = std::make_unique<Model>(Model::open(model, run, stop, files));
  });
}

OpenModel::~OpenModel() {
  if (getpid() != process_) static_cast<void>(model_.release());
}

const Model& OpenModel::use() const {
  if (getpid() != process_)
    throw Error(ErrorCode::usage,
                "this model was opened before the process was forked, and its threads are not "
                "here: open it again with from_pretrained, or start processes by 'spawn'");
  return *model_;
}

void bind_model(nb::module_& module) {
  nb::class_<CancelToken>(module, "CancelToken")
      .def(nb::init<>())
      .def("cancel", [](CancelToken& token) { token.source.request_stop(); })
      .def_prop_ro("cancelled",
                   [](const CancelToken& token) { return token.source.stop_requested(); });
  bind_options(module);
  nb::class_<StepWatch>(module, "StepWatch")
      .def(nb::init<>())
      .def_rw("on_step", &StepWatch::on_step, nb::arg().none())
      .def_rw("latents", &StepWatch::latents)
      .def_rw("previews", &StepWatch::previews);
  nb::class_<ForwardOptions>(module, "ForwardOptions")
      .def(nb::init<>())
      .def_rw("component", &ForwardOptions::component)
      .def_rw("trace", &ForwardOptions::trace)
      .def_rw("moe", &ForwardOptions::moe)
      .def_rw("vae_tiling", &ForwardOptions::vae_tiling)
      .def_rw("vae_tile", &ForwardOptions::vae_tile)
      .def_rw("vae_chunk", &ForwardOptions::vae_chunk);
  nb::class_<TokenizeRequest>(module, "TokenizeRequest")
      .def(nb::init<>())
      .def_rw("prompts", &TokenizeRequest::prompts)
      .def_rw("chat", &TokenizeRequest::chat)
      .def_rw("raw", &TokenizeRequest::raw)
      .def_rw("tokenizer", &TokenizeRequest::tokenizer);
  nb::class_<PrefixCache>(
      module, "PrefixCache",
      "What the turns of one talk share: keys and values of its finished blocks.")
      .def(nb::init<>())
      .def_prop_ro("tokens", &PrefixCache::tokens)
      .def_prop_ro("bytes", &PrefixCache::bytes)
      .def("clear", &PrefixCache::clear);
  bind_result(module);
  const auto none = nb::none();
  nb::class_<OpenModel>(module, "OpenModel")
      .def(nb::init<const std::string&, const OpenOptions&, const CancelToken*>(), nb::arg("model"),
           nb::arg("options"), nb::arg("cancel") = none)
      .def_prop_ro("classes", [](const OpenModel& m) { return m.use().classes(); })
      .def_prop_ro("makes_videos", [](const OpenModel& m) { return m.use().makes_videos(); })
      .def_prop_ro("frame_rate", [](const OpenModel& m) { return m.use().frame_rate(); })
      .def("generate", generate, nb::arg("request"), nb::arg("initial"), nb::arg("watch"),
           nb::arg("on_note") = none, nb::arg("cancel") = none)
      .def("complete", complete, nb::arg("request"), nb::arg("on_progress") = none,
           nb::arg("on_note") = none, nb::arg("cancel") = none, nb::arg("prefix") = none)
      .def("forward", forward, nb::arg("options"), nb::arg("inputs"), nb::arg("on_note") = none,
           nb::arg("cancel") = none)
      .def("inspect", inspect, nb::arg("request"))
      .def("tokenize", tokenize, nb::arg("request"));
}

}  // namespace tessera::python
