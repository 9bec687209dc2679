#include "load/meta_weights.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/name_list.h"
#include "load/quantisation.h"
#include "nn/input_records.h"
#include "nn/weight_key.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::load {
namespace {

using ops::DType;
using tensor::Device;
using tensor::MemoryClass;
using tensor::Shape;
using tensor::Storage;
using tensor::Tensor;

std::string listed(const char* heading, const std::vector<NamedItem>& items) {
  if (items.empty()) return "";
  return fmt::format("; {} {}: {}", items.size(), heading, listed_names(items));
}

bool matches(const std::string& name, std::span<const std::string> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  });
}

bool is_beside(const std::string& owner, const std::map<std::string, Shape>& shapes) {
  const auto inside = shapes.lower_bound(owner + ".");
  return shapes.contains(owner) ||
         (inside != shapes.end() && inside->first.starts_with(owner + "."));
}

// True if an unused tensor holds quantisation data of used weights, under names of common programs:
// X.weight_scale, X.scale_weight, X.comfy_quant, X.weight.absmax, X.weight_zero_point, X.SCB,
// X.g_idx, experts.down_proj_scales, ...
bool quantises(const std::string& name, const std::map<std::string, Shape>& shapes) {
  constexpr std::string_view kWords[] = {"scale",  "quant", "zero_point", "qzeros",
                                         "absmax", "scb",   "g_idx"};
  if (name == "scaled_fp8" || name.ends_with(".scaled_fp8")) return true;  // ComfyUI's mark
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  size_t word = 0;  // begins after the relevant dots; 0: none
  for (const std::string_view part : kWords)
    if (const size_t at = lower.rfind(part); at != std::string::npos) word = std::max(word, at);
  for (size_t end = name.size(); end > 0 && word > 0;) {
    const size_t dot = name.rfind('.', end - 1);
    if (dot == std::string::npos) break;
    const std::string owner = name.substr(0, dot);
    const bool deep = end < name.size();  // X.weight.quant_state.nf4
    const bool says = dot < word && lower.compare(dot + 1, std::string::npos, "logit_scale") != 0;
    if (says && (deep ? shapes.contains(owner) : is_beside(owner, shapes))) return true;
    end = dot;
  }
  return false;
}

Tensor uncounted(const Shape& shape, DType dtype) {
  const tensor::Uncounted aside(tensor::Counts::work);
  return Tensor::empty(shape, dtype, Device::meta, MemoryClass::weights);
}

}  // namespace

bool MetaWeights::has(const std::string& name) const { return known_ && known_->has(name); }

bool MetaWeights::smoothed(const std::string& weight) const {
  return has(nn::input_scale_of(weight));
}

void MetaWeights::record(const std::string& name, const Shape& shape) const {
  const std::lock_guard lock(mutex_);
  const auto [at, added] = asked_.emplace(name, shape);
  require(added || at->second == shape, ErrorCode::model,
          "the model asks for tensor {} as {} and as {}", base::printable(name), at->second.str(),
          shape.str());
}

// Temporary memory of a real run (read, packed, freed): recorded, not counted as memory.
Tensor MetaWeights::passing(const std::string& name, const Shape& shape, const nn::Cut& cut) const {
  record(name, shape);
  return uncounted(cut.of(shape), DType::f32);
}

ops::StoredMatrix MetaWeights::passing_matrix(const std::string& name, const Shape& shape,
                                              const ops::WeightForm& form,
                                              const nn::Cut& cut) const {
  {
    const std::lock_guard lock(mutex_);
    packed_[name] = form;
  }
  if (!known_ || !is_quantised(*known_, name)) {
    if (!form.int4) return passing(name, shape, cut);
    return taken(ops::quantised(passing(name, shape), true), cut, name);
  }
  const StoredShapes shapes = stored_shapes(*known_, name, shape[0], shape[1]);
  record(name, shapes.values);
  if (!shapes.within) record(scales_of(name), shapes.scales);
  if (form.dtype != DType::i8) return uncounted(cut.of(shape), DType::f32);  // refused by a store
  const bool rows = order_of(*known_, name) == WeightOrder::rows;
  const Shape values = form.int4 ? Shape{shape[0], shape[1] / 2} : shape;
  return taken({uncounted(rows ? shapes.values : values, shapes.values_dtype),
                uncounted(shapes.scales, shapes.scales_dtype)},
               cut, name);
}

template <class T, class Make>
std::shared_ptr<T> MetaWeights::share(const std::string& key, const Make& make) const {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const void>& cached = shared_[key];
  if (const auto value = cached.lock())
    return std::static_pointer_cast<T>(std::const_pointer_cast<void>(value));
  std::shared_ptr<T> value = make();
  cached = value;
  return value;
}

Tensor MetaWeights::resident(const std::string& name, const Shape& shape, DType dtype,
                             const nn::Cut& cut) const {
  record(name, shape);
  const Shape part = cut.of(shape);
  const auto storage = share<Storage>(nn::weight_key("stored", name, dtype, cut), [&] {
    return Storage::allocate(part.elements() * size_of(dtype), Device::meta, MemoryClass::weights);
  });
  return Tensor::over(storage, 0, part, dtype);
}

nn::FetchedWeight MetaWeights::fetch(const nn::WeightRequest& request) const {
  switch (request.form) {
    case Form::stored:
    case Form::table: return {.tensor = stored(request.name, request.shape)};
    case Form::vector:
      return {.tensor = resident(request.name, request.shape, DType::f32, request.cut)};
    case Form::matrix: return {.packed = packed_matrix(request)};
    case Form::paired: return {.packed = packed_pair(request)};
    case Form::conv: return packed_filter(request);
  }
  return {};
}

Tensor MetaWeights::stored(const std::string& name, const Shape& shape) const {
  DType dtype = stored_;
  if (known_ && known_->has(name)) dtype = dtype_of(known_->entry(name).dtype).value_or(stored_);
  {
    const std::lock_guard lock(mutex_);
    as_stored_.insert(name);
  }
  return resident(name, shape, dtype);
}

ops::Weight MetaWeights::packed_matrix(const nn::WeightRequest& r) const {
  const ops::WeightForm form =
      known_ ? packed_as(*known_, r.name, r.compute, r.shape[1]) : r.compute;
  const ops::StoredMatrix w = passing_matrix(r.name, r.shape, form, r.cut);
  return share<ops::Weight::element_type>(nn::weight_key("matrix", r.name, form, r.cut),
                                          [&] { return ops::pack_weight(w, form); });
}

ops::Weight MetaWeights::packed_pair(const nn::WeightRequest& r) const {
  const std::string& gate = r.name;
  const std::string& up = r.second;
  const ops::WeightForm form = known_ ? pair_packed_as(*known_, gate, up, r.compute, r.shape[1])
                                      : ops::WeightForm(r.compute);
  {
    const std::lock_guard lock(mutex_);
    pairs_[gate] = up;
  }
  const ops::StoredMatrix g = passing_matrix(gate, r.shape, form, r.cut),
                          u = passing_matrix(up, r.shape, form, r.cut);
  return share<ops::Weight::element_type>(nn::weight_key("paired", gate + " " + up, form, r.cut),
                                          [&] { return ops::pack_paired_weight(g, u, form); });
}

nn::FetchedWeight MetaWeights::packed_filter(const nn::WeightRequest& r) const {
  const Tensor w = passing(r.name, r.shape);
  const Tensor b = r.second.empty() ? Tensor() : vector(r.second, r.shape[0]);
  const std::string key = nn::weight_key(r);
  if (r.shape.rank() == 5)
    return {.frames = share<ops::FrameFilters::element_type>(
                key, [&] { return ops::pack_frames(w, b, r.compute, w.device()); })};
  return {.filter = share<ops::ConvWeight::element_type>(
              key, [&] { return ops::pack_conv(w, b, r.compute); })};
}

std::map<std::string, Shape> MetaWeights::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

std::map<std::string, ops::WeightForm> MetaWeights::forms() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, ops::WeightForm> forms = packed_;
  std::erase_if(forms, [&](const auto& form) { return as_stored_.contains(form.first); });
  return forms;
}

std::vector<std::string> MetaWeights::packed_in(DType compute) const {
  std::vector<std::string> names;
  for (const auto& [name, form] : forms())
    if (form.dtype == compute) names.push_back(name);
  return names;
}

std::map<std::string, std::string> MetaWeights::pairs() const {
  const std::lock_guard lock(mutex_);
  return pairs_;
}

int64_t MetaWeights::parameters() const {
  int64_t total = 0;
  for (const auto& [name, shape] : asked()) total += shape.elements();
  return total;
}

std::string check_names(const MetaWeights& weights, const TensorSet& tensors,
                        const std::string& folder, std::span<const std::string> unused) {
  std::vector<NamedItem> missing, extra, misshaped, unread;
  const std::map<std::string, Shape> requested = weights.asked();
  std::set<std::string> file_names;  // several model tensors may be in a file tensor
  const auto tell = [&](const std::string& name, const std::string& note,
                        std::vector<NamedItem>& list) {
    const std::string file_name = tensors.file_name(name);
    if (file_name.empty() || file_names.insert(file_name).second)
      list.push_back({file_name.empty() ? name : file_name, note});
  };
  for (const auto& [name, shape] : requested) {
    base::check_stop();
    if (!tensors.has(name)) {
      const bool renamed = !tensors.file_name(name).empty();
      tell(name, renamed ? "" : " " + shape.str(), missing);
    } else if (const TensorEntry& entry = tensors.entry(name);
               !entry.has_sizes({shape.begin(), shape.end()})) {
      tell(name, fmt::format(" is [{}], expected {}", fmt::join(entry.sizes, ", "), shape.str()),
           misshaped);
    } else if (const std::string& type = entry.dtype; !dtype_of(type)) {
      unread.push_back({name, " is " + type});
    }
  }
  for (const std::string& name : tensors.names()) {
    base::check_stop();
    if (!requested.contains(name) && !matches(name, unused)) extra.push_back({name, ""});
  }
  std::map<std::string, Shape> asked_and_there =
      requested;  // missing weights are reported as missing
  std::erase_if(asked_and_there, [&](const auto& item) { return !tensors.has(item.first); });
  std::vector<NamedItem> scales;
  for (const NamedItem& item : extra)
    if (quantises(item.name, asked_and_there)) scales.push_back(item);
  require(
      unread.empty(), ErrorCode::model,
      "the weights in '{}' are of a type that is not read{}; download the files of the same model "
      "in bf16, f16 or f32",
      folder, listed("such", unread));
  require(scales.empty(), ErrorCode::model,
          "the weights in '{}' are quantised by another program, and their numbers mean something "
          "else without what stands beside them{}; download the files of the same model in bf16, "
          "f16 or f32",
          folder, listed("that nothing here reads", scales));
  require(
      missing.empty() && misshaped.empty(), ErrorCode::model,
      "the weights in '{}' do not fit its config.json{}{}{}; use the weights and the config of one "
      "model",
      folder, listed("missing", missing), listed("of another shape", misshaped),
      listed("that the model does not know", extra));
  if (extra.empty()) return tensors.choice();
  return fmt::format("{}{}'{}' holds {} tensor{} that nothing here reads: {}", tensors.choice(),
                     tensors.choice().empty() ? "" : "; ", folder, extra.size(),
                     extra.size() == 1 ? "" : "s", listed_names(extra));
}

}  // namespace tessera::load
