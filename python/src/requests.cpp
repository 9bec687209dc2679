#include "requests.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "tessera/engine.h"
#include "tessera/request_fields.h"

namespace tessera::python {
namespace {

namespace nb = nanobind;

// A path, the bytes of a file, or pixels: an array of bytes [height, width, 3].
InputImage image_of(const nb::object& object) {
  if (nb::isinstance<nb::str>(object)) return {.file = nb::cast<std::string>(object)};
  if (nb::isinstance<nb::bytes>(object)) {
    const auto bytes = nb::cast<nb::bytes>(object);
    return {.bytes = std::string(bytes.c_str(), bytes.size())};
  }
  using Pixels =
      nb::ndarray<nb::ro, const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
  const auto pixels = nb::cast<Pixels>(object);
  InputImage image;
  image.pixels.height = static_cast<int64_t>(pixels.shape(0));
  image.pixels.width = static_cast<int64_t>(pixels.shape(1));
  image.pixels.rgb.assign(pixels.data(), pixels.data() + pixels.size());
  return image;
}

// The value of a field by its name; the type is known from the table.
template <class Value, class Request>
Value& value_of(Request& request, const char* name) {
  Value* result = nullptr;
  visit_fields(request, [&](const Field& field, auto& value) {
    if constexpr (std::same_as<std::remove_reference_t<decltype(value)>, Value>)
      if (std::string_view(field.name) == name) result = &value;
  });
  return *result;
}

// A property for each field of a request's table; choices are their words.
template <class Request>
void bind_fields(nb::class_<Request>& bound) {
  Request unset;
  visit_fields(unset, [&]<class Value>(const Field& field, Value&) {
    const char* const name = field.name;
    if constexpr (WordValue<Value>)
      bound.def_prop_rw(
          name, [name](Request& q) { return word_for(value_of<Value>(q, name)); },
          [name](Request& q, const std::string& word) {
            read_word(word, name, value_of<Value>(q, name));
          });
    else
      bound.def_prop_rw(
          name, [name](Request& q) { return value_of<Value>(q, name); },
          [name](Request& q, const Value& value) { value_of<Value>(q, name) = value; });
  });
}

void bind_generate(nb::module_& module) {
  using Q = GenerateRequest;
  nb::class_<Q> request(module, "GenerateRequest");
  bind_fields(request);
  request.def(nb::init<>())
      .def_rw("classes", &Q::classes)
      .def_rw("prompts", &Q::prompts)
      .def_rw("negative_prompt", &Q::negative_prompt)
      .def_rw("embeddings", &Q::embeddings)
      .def_rw("seeds", &Q::seeds)
      .def_rw("trace", &Q::trace)
      .def_rw("decode", &Q::decode)
      .def_prop_rw(
          "vae_tiling", [](const Q& q) { return q.vae_tiling == VaeTiling::on; },
          [](Q& q, bool on) { q.vae_tiling = on ? VaeTiling::on : VaeTiling::off; })
      .def_rw("vae_tile", &Q::vae_tile)
      .def_rw("previews", &Q::previews)
      .def_prop_rw(
          "outpaint", [](const Q& q) { return q.outpaint.left; },
          [](Q& q, const std::string& text) { q.outpaint = parse_margins(text); })
      .def("add_image", [](Q& q, const nb::object& image) { q.images.push_back(image_of(image)); })
      .def("set_mask", [](Q& q, const nb::object& image) { q.mask = image_of(image); })
      .def("add_lora", [](Q& q, const std::string& file, double strength) {
        q.loras.push_back({file, strength});
      });
}

void bind_complete(nb::module_& module) {
  using Q = CompleteRequest;
  nb::class_<Q> request(module, "CompleteRequest");
  bind_fields(request);
  request.def(nb::init<>())
      .def_rw("prompts", &Q::prompts)
      .def_rw("prompt_ids", &Q::prompt_ids)
      .def_rw("chat", &Q::chat)
      .def_rw("stop", &Q::stop)
      .def_rw("draws", &Q::draws);
}

}  // namespace

void bind_requests(nb::module_& module) {
  bind_generate(module);
  bind_complete(module);
}

}  // namespace tessera::python
