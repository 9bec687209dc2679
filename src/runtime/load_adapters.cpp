#include "runtime/load_adapters.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/fail.h"
#include "base/is_there.h"
#include "load/adapter_file.h"
#include "nn/weights_over.h"
#include "runtime/model_state.h"
#include "tensor/uncounted.h"
#include "tessera/words.h"

namespace tessera::runtime {
namespace {

using tensor::Tensor;

/// The layers that adapters may change, among requests of a network on meta.
class LayerRecorder {
 public:
  /// Weights on meta, with a note of each request.
  nn::AnsweredWeights noting(const std::shared_ptr<const nn::Weights>& meta) {
    return {meta, [this, meta](const nn::WeightRequest& request) {
              using Form = nn::WeightRequest::Form;
              const bool matrix = request.form == Form::stored && request.shape.rank() > 1;
              if (matrix || request.packs()) note(request.name, request.shape);
              if (request.form == Form::paired) note(request.second, request.shape);
              return meta->fetch(request);
            }};
  }
  std::vector<load::AdapterLayer> layers() const {
    std::vector<load::AdapterLayer> result;
    for (const auto& [name, shape] : layers_)
      result.push_back({name, shape[0], shape.elements() / shape[0]});
    return result;
  }

 private:
  void note(const std::string& name, const tensor::Shape& shape) {
    constexpr std::string_view kEnd = ".weight", kExperts = ".experts.";
    if (!name.ends_with(kEnd) || name.find(kExperts) != std::string::npos) return;
    const std::lock_guard lock(mutex_);
    layers_.insert_or_assign(name.substr(0, name.size() - kEnd.size()), shape);
  }
  std::mutex mutex_;
  std::map<std::string, tensor::Shape> layers_;
};

std::vector<load::AdapterPart> parts_of(const ModelState& state) {
  const tensor::Uncounted aside;
  std::vector<load::AdapterPart> parts;
  const load::Component& network = state.folder.component("transformer");
  LayerRecorder recorder;
  state.spec->make(recorder.noting(state.meta_weights_of("transformer")), state.spec->whole(),
                   state.dtype());
  parts.push_back({"transformer", network.class_name, recorder.layers()});
  for (const char* name : {"text_encoder", "text_encoder_2", "text_encoder_3"}) {
    if (!state.folder.has(name)) continue;
    const load::Component& part = state.folder.component(name);
    LayerRecorder layers;
    const auto weights =
        std::make_shared<const nn::AnsweredWeights>(layers.noting(state.meta_weights_of(name)));
    models::text_encoder_of(part.class_name, {part.config, part.description()}, weights,
                            state.dtype())
        ->encode({{0}, {1}, 1});  // the encoder requests all its weights
    parts.push_back({name, part.class_name, layers.layers()});
  }
  return parts;
}

int64_t bytes_of(const nn::WeightChange& change) {
  int64_t bytes = 0;
  for (const Tensor* x : {&change.down, &change.up, &change.magnitude})
    if (x->defined()) bytes += x->bytes();
  return bytes;
}

}  // namespace

std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const std::vector<Lora>& loras, bool merged) {
  require(!merged || !loras.empty(), ErrorCode::usage,
          "`merge_lora`: there is no adapter to merge; add `loras` FILE");
  if (loras.empty()) return nullptr;
  require(
      !merged || !state.quantises_products(), ErrorCode::usage,
      "`merge_lora`: weights are quantised as they are read, and would lose what is merged into "
      "them; leave it out, and adapters stand beside their products");
  const load::AdapterNames names(parts_of(state));
  auto adapters = std::make_shared<Adapters>();
  adapters->merge = merged;
  std::map<std::string, std::shared_ptr<nn::WeightChanges>> sums;
  for (const Lora& lora : loras) {
    size_t layers = 0;
    for (const auto& [part, changes] : load::read_adapter(lora.file, lora.strength, names)) {
      layers += changes.size();
      if (lora.strength == 0) continue;  // results stay identical to a run without the adapter
      auto& sum = sums[part];
      if (!sum) sum = std::make_shared<nn::WeightChanges>();
      for (const auto& [name, change] : changes) {
        adapters->bytes += bytes_of(change.front());
        (*sum)[name].push_back(change.front());
      }
    }
    adapters->notes.push_back(fmt::format("the adapter '{}' changes {} layers at strength {}{}",
                                          std::filesystem::path(lora.file).filename().string(),
                                          layers, lora.strength,
                                          lora.strength == 0 ? ": not at all" : ""));
  }
  adapters->parts = {sums.begin(), sums.end()};
  return adapters;
}

std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const ForwardRequest& request,
                                              const RunControl& control) {
  const bool adaptable = state.spec && (request.component == ModelPart::transformer ||
                                        request.component >= ModelPart::text_encoder);
  require(request.loras.empty() || adaptable, ErrorCode::usage,
          "`loras`: '{}' takes no adapter; leave it out", word_of(request.component));
  auto adapters = load_adapters(state, request.loras, request.merge_lora);
  if (adapters && control.on_note)
    for (const std::string& note : adapters->notes) control.on_note(note);
  return adapters;
}

}  // namespace tessera::runtime

namespace tessera {

Lora parse_lora(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return {text};
  double strength = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, strength);
  const bool number = error == std::errc() && rest == end;
  if (!number && base::is_there(text)) return {text};
  require(number, ErrorCode::usage,
          "`loras` {}: expected FILE, or FILE:STRENGTH with a number as 0.8", text);
  return {text.substr(0, colon), strength};
}

}  // namespace tessera
