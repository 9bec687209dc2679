#include "requests.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "tessera/engine.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;

// A path, the bytes of a file, or pixels: an array of bytes [height, width, 3].
InputImage image_of(const nb::object& given) {
  if (nb::isinstance<nb::str>(given)) return {.file = nb::cast<std::string>(given)};
  if (nb::isinstance<nb::bytes>(given)) {
    const auto bytes = nb::cast<nb::bytes>(given);
    return {.bytes = std::string(bytes.c_str(), bytes.size())};
  }
  using Pixels =
      nb::ndarray<nb::ro, const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
  const auto pixels = nb::cast<Pixels>(given);
  InputImage image;
  image.pixels.height = static_cast<int64_t>(pixels.shape(0));
  image.pixels.width = static_cast<int64_t>(pixels.shape(1));
  image.pixels.rgb.assign(pixels.data(), pixels.data() + pixels.size());
  return image;
}

void bind_images(nb::class_<GenerateRequest>& request) {
  using Q = GenerateRequest;
  request.def_rw("strength", &Q::strength)
      .def_rw("alpha_mask", &Q::alpha_mask)
      .def_rw("soft_mask", &Q::soft_mask)
      .def_rw("mask_blur", &Q::mask_blur)
      .def_prop_rw(
          "image_fitting", [](const Q& q) { return word_of(q.image_fitting); },
          [](Q& q, const std::string& word) {
            q.image_fitting = choice_of<ImageFitting>(word, "image_fitting");
          })
      .def_prop_rw(
          "outpaint", [](const Q& q) { return q.outpaint.left; },
          [](Q& q, const std::string& text) { q.outpaint = parse_margins(text); })
      .def("add_image", [](Q& q, const nb::object& image) { q.images.push_back(image_of(image)); })
      .def("set_mask", [](Q& q, const nb::object& image) { q.mask = image_of(image); });
}

void bind_generate(nb::module_& module) {
  using Q = GenerateRequest;
  nb::class_<Q> request(module, "GenerateRequest");
  bind_images(request);
  request.def(nb::init<>())
      .def_rw("classes", &Q::classes)
      .def_rw("prompts", &Q::prompts)
      .def_rw("negative_prompt", &Q::negative_prompt)
      .def_rw("embeddings", &Q::embeddings)
      .def_rw("clean_caption", &Q::clean_caption)
      .def_rw("text_tokens", &Q::text_tokens)
      .def_rw("steps", &Q::steps)
      .def_rw("timesteps", &Q::timesteps)
      .def_rw("sigmas", &Q::sigmas)
      .def_rw("padding_mask_crop", &Q::padding_mask_crop)
      .def_rw("guidance", &Q::guidance)
      .def_rw("true_guidance", &Q::true_guidance)
      .def_rw("guidance_rescale", &Q::guidance_rescale)
      .def_rw("cfg_normalization", &Q::cfg_normalization)
      .def_rw("cfg_truncation", &Q::cfg_truncation)
      .def_rw("width", &Q::width)
      .def_rw("height", &Q::height)
      .def_rw("binning", &Q::binning)
      .def_rw("fit", &Q::fit)
      .def_rw("frames", &Q::frames)
      .def_rw("count", &Q::count)
      .def_rw("seed", &Q::seed)
      .def_rw("seeds", &Q::seeds)
      .def_prop_rw(
          "noise", [](const Q& q) { return word_of(q.noise); },
          [](Q& q, const std::string& word) { q.noise = choice_of<NoiseSource>(word, "noise"); })
      .def_prop_rw(
          "scheduler", [](const Q& q) { return word_of(q.scheduler); },
          [](Q& q, const std::string& word) { q.scheduler = parse_scheduler(word); })
      .def_rw("trace", &Q::trace)
      .def_rw("overwrite", &Q::overwrite)
      .def_rw("decode", &Q::decode)
      .def_prop_rw(
          "vae_tiling", [](const Q& q) { return q.vae_tiling == VaeTiling::on; },
          [](Q& q, bool on) { q.vae_tiling = on ? VaeTiling::on : VaeTiling::off; })
      .def_rw("vae_tile", &Q::vae_tile)
      .def_rw("vae_chunk", &Q::vae_chunk)
      .def_rw("compare_steps", &Q::compare_steps)
      .def_rw("previews", &Q::previews)
      .def_prop_rw(
          "cache", [](const Q& q) { return q.cache ? to_string(*q.cache) : std::string(); },
          [](Q& q, const std::string& text) { q.cache = parse_step_cache(text); })
      .def("add_lora", [](Q& q, const std::string& file, double strength) {
        q.loras.push_back({file, strength});
      });
}

void bind_complete(nb::module_& module) {
  using Q = CompleteRequest;
  nb::class_<Q>(module, "CompleteRequest")
      .def(nb::init<>())
      .def_rw("prompts", &Q::prompts)
      .def_rw("prompt_ids", &Q::prompt_ids)
      .def_rw("chat", &Q::chat)
      .def_rw("raw", &Q::raw)
      .def_rw("max_tokens", &Q::max_tokens)
      .def_rw("block", &Q::block)
      .def_rw("decode", &Q::decode)
      .def_rw("as_published", &Q::as_published)
      .def_rw("steps", &Q::steps)
      .def_prop_rw(
          "cache", [](const Q& q) { return word_of(q.cache.kind); },
          [](Q& q, const std::string& text) { q.cache = parse_cache(text); })
      .def_prop_rw(
          "stop_at_eos", [](const Q& q) { return word_of(q.stop_at_eos); },
          [](Q& q, const std::string& word) {
            q.stop_at_eos = choice_of<StopAtEos>(word, "stop_at_eos");
          })
      .def_rw("select", &Q::select)
      .def_rw("select_refresh", &Q::select_refresh)
      .def_rw("select_prefill", &Q::select_prefill)
      .def_rw("temperature", &Q::temperature)
      .def_rw("top_k", &Q::top_k)
      .def_rw("top_p", &Q::top_p)
      .def_rw("repetition_penalty", &Q::repetition_penalty)
      .def_rw("seed", &Q::seed)
      .def_rw("n", &Q::n)
      .def_rw("logprobs", &Q::logprobs)
      .def_rw("stop", &Q::stop)
      .def_rw("draws", &Q::draws);
}

}  // namespace

void bind_requests(nb::module_& module) {
  bind_generate(module);
  bind_complete(module);
}

}  // namespace tessera::python
