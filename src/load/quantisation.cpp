#include "load/quantisation.h"

#include <string_view>

#include "base/fail.h"
#include "base/printable.h"
#include "nn/input_records.h"
#include "nn/weights_over.h"
#include "ops/packing.h"

namespace tessera::load {
namespace {

constexpr const char* kBehind = "_scale";
constexpr const char* kBlocks = "blocks";  // a rule's key
constexpr std::string_view kOfExperts = ".experts.";

// True if a tensor has this dtype and a tensor of scales beside it; `scales`: their dtype, null:
// any.
bool has_scaled(const TensorSet& tensors, const std::string& name, const char* dtype,
                const char* scales) {
  return tensors.has(name) && tensors.entry(name).dtype == dtype && tensors.has(scales_of(name)) &&
         (!scales || tensors.entry(scales_of(name)).dtype == scales);
}

// True if a tensor has the axes of Order::panels or Order::half (int4, its scales in the panels).
bool are_panels(const TensorSet& tensors, const std::string& name) {
  if (!tensors.has(name) || tensors.entry(name).dtype != "U8") return false;
  const std::vector<int64_t>& sizes = tensors.entry(name).sizes;
  const int64_t step = ops::step_bytes(true);
  return sizes.size() == 3 && (sizes.back() == step || sizes.back() == step / 2);
}

// Bits of products for a block format of ggml: the fewest that add less than a percent to the
// error of the format. None: formats that are computed as floats.
QuantiseRules::Bits bits_of(tensor::BlockFormat format) {
  using tensor::BlockFormat;
  using Bits = QuantiseRules::Bits;
  switch (format) {
    case BlockFormat::fp8_e4m3:
    case BlockFormat::fp8_e5m2:
    case BlockFormat::int8: return Bits::none;
    case BlockFormat::q4_0: return Bits::int4;
    default: return Bits::int8;
  }
}

// Bits of products for a matrix of the file, if the rule `blocks` keeps blocks in few bits. In a
// language model these are routed experts: attention is small, and scales of rows cost it most.
QuantiseRules::Bits own_block_bits(const TensorSet& tensors, const std::string& name) {
  using Bits = QuantiseRules::Bits;
  const bool blocks = tensors.has(name) && tensors.entry(name).format &&
                      (!tensors.language() || name.find(kOfExperts) != std::string::npos) &&
                      tensors.rules().said(kBlocks).value_or(Bits::none) != Bits::none;
  return blocks ? bits_of(*tensors.entry(name).format) : Bits::none;
}

// The matrices of a routed expert share a form: the one with the most bits decides.
QuantiseRules::Bits block_bits(const TensorSet& tensors, const std::string& name) {
  using Bits = QuantiseRules::Bits;
  const Bits own = own_block_bits(tensors, name);
  const size_t end = name.rfind('.', name.rfind("_proj.weight"));
  if (!tensors.language() || own == Bits::none || end == std::string::npos) return own;
  Bits most = Bits::int4;
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
    const Bits bits =
        own_block_bits(tensors, fmt::format("{}.{}.weight", name.substr(0, end), part));
    if (bits == Bits::none) return bits;
    if (bits == Bits::int8) most = bits;
  }
  return most;
}

// Converts a cut along k to units of several elements.
nn::Cut in_units(nn::Cut cut, int64_t elements) {
  if (cut.axis == 1)
    for (nn::Range& r : cut.ranges) r = {r.begin / elements, (r.end + elements - 1) / elements};
  return cut;
}

}  // namespace

std::string scales_of(const std::string& matrix) { return matrix + kBehind; }

bool is_int4(const TensorSet& tensors, const std::string& name) {
  return has_scaled(tensors, name, "U8", "BF16") || are_panels(tensors, name);
}

bool is_quantised(const TensorSet& tensors, const std::string& name) {
  return has_scaled(tensors, name, "I8", nullptr) || is_int4(tensors, name);
}

WeightOrder order_of(const TensorSet& tensors, const std::string& name) {
  const TensorEntry& entry = tensors.entry(name);
  if (!is_quantised(tensors, name) || entry.sizes.size() != 3) return WeightOrder::rows;
  const bool whole = entry.sizes.back() == ops::step_bytes(is_int4(tensors, name));
  return whole ? WeightOrder::panels : WeightOrder::half;
}

StoredShapes stored_shapes(const TensorSet& tensors, const std::string& name, int64_t n,
                           int64_t k) {
  using tensor::DType;
  using tensor::Shape;
  const bool int4 = is_int4(tensors, name);
  const WeightOrder order = order_of(tensors, name);
  const bool half = order == WeightOrder::half;
  Shape values{n, int4 ? k / 2 : k};
  if (order != WeightOrder::rows && ops::fills_panels(n, k, half))  // else rows were expected
    values = {n / (half ? ops::kTileColumns : ops::kPanelColumns), k / ops::kStepElements,
              ops::step_bytes(int4) / (half ? 2 : 1)};
  if (!int4) return {values, {n}, DType::i8, DType::f32};
  require(
      k % 2 == 0, ErrorCode::model,
      "{}: tensor {} is in int4 (U8), and its rows are of {} elements; expected an even number: "
      "quantise the folder again, in int8",
      tensors.file(name).path(), base::printable(name), k);
  const bool within = order != WeightOrder::rows && !tensors.has(scales_of(name));
  return {values, {n, ops::groups_of(k)}, DType::u8, DType::bf16, within};
}

ops::StoredMatrix taken(const ops::StoredMatrix& whole, const nn::Cut& cut,
                        const std::string& name) {
  if (!whole.scales.defined()) return nn::taken(whole.values, cut);
  if (!ops::holds_nibbles(whole))
    return {nn::taken(whole.values, cut),
            cut.axis == 0 ? nn::taken(whole.scales, cut) : whole.scales};
  const int64_t k = 2 * whole.values.size(1);
  for (const nn::Range& r : cut.ranges)
    require(
        cut.axis == 0 || (r.begin % ops::kGroupElements == 0 &&
                          (r.end % ops::kGroupElements == 0 || r.end == k)),
        ErrorCode::plan,
        "the plan cannot run: tensor= takes the elements {} to {} of the rows of {}, whose "
        "scales in int4 are of {} each; leave tensor= out (expert= cuts no matrix), or quantise "
        "to int8",
        r.begin, r.end, base::printable(name), ops::kGroupElements);
  return {nn::taken(whole.values, in_units(cut, 2)),
          nn::taken(whole.scales, in_units(cut, ops::kGroupElements))};
}

ops::WeightForm packed_as(const TensorSet& tensors, const std::string& name, tensor::DType compute,
                          int64_t k) {
  using tensor::DType;
  if (!is_quantised(tensors, name)) {
    const QuantiseRules::Bits bits = block_bits(tensors, name);
    if (bits == QuantiseRules::Bits::none)
      return tensors.rules().form(name, compute, k, tensors.encoder());
    if (tensors.language()) {
      ops::WeightForm form(compute == DType::f32 ? compute : DType::i8);
      form.int4 = compute == DType::bf16 && bits == QuantiseRules::Bits::int4;
      return form;
    }
    QuantiseRules rules = QuantiseRules::all_in(bits);  // before those that the user gives
    rules.add(tensors.rules().text(), "quantise_rules");
    return rules.form(name, compute, k, tensors.encoder());
  }
  const bool dense = compute != DType::i8;
  if (dense && !tensors.dense_in_int8()) return compute;
  ops::WeightForm form(DType::i8);
  form.int4 = is_int4(tensors, name);
  form.int8_rows = dense && tensors.int8_rows();
  return form;
}

ops::WeightForm pair_packed_as(const TensorSet& tensors, const std::string& gate,
                               const std::string& up, tensor::DType compute, int64_t k) {
  using tensor::DType;
  const ops::WeightForm form = packed_as(tensors, gate, compute, k);
  const ops::WeightForm other = packed_as(tensors, up, compute, k);
  // In a quantised folder, an unquantised half of a pair follows the other half.
  const bool quantised = is_quantised(tensors, gate);
  if (quantised != is_quantised(tensors, up)) return quantised ? form : other;
  // Halves in two block formats take the form of more bits.
  using Bits = QuantiseRules::Bits;
  const Bits bits[] = {block_bits(tensors, gate), block_bits(tensors, up)};
  if (form != other && (bits[0] != Bits::none || bits[1] != Bits::none))
    return form.dtype != DType::i8 || (other.dtype == DType::i8 && other.int4) ? form : other;
  require(form == other, ErrorCode::usage,
          "{} and {} are one product of a gated MLP, and are to be packed in two forms; give rules "
          "that name both",
          base::printable(gate), base::printable(up));
  return form;
}

bool is_int8_filter(std::string_view name, const tensor::Shape& shape, int64_t fewest_channels) {
  const auto holds = [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  return holds(".resnets.") && (holds(".conv1.") || holds(".conv2.")) &&
         name.ends_with(".weight") && shape[1] >= fewest_channels;
}

std::shared_ptr<const nn::Weights> with_int8_filters(
    std::shared_ptr<const nn::Weights> weights,  // NOLINT(performance-unnecessary-value-param)
    int64_t fewest_channels) {
  const auto in_int8 = [weights, fewest_channels](nn::WeightRequest request) {
    if (request.form == nn::WeightRequest::Form::conv && request.compute == tensor::DType::bf16 &&
        is_int8_filter(request.name, request.shape, fewest_channels))
      request.compute = tensor::DType::i8;
    return weights->fetch(request);
  };
  return std::make_shared<const nn::AnsweredWeights>(weights, in_int8);
}

int64_t elements_of(const TensorSet& tensors, const std::string& name) {
  int64_t elements = 1;
  for (const int64_t size : tensors.entry(name).sizes) elements *= size;
  if (!is_int4(tensors, name)) return elements;
  if (order_of(tensors, name) == WeightOrder::rows) return 2 * elements;
  return elements * (ops::kStepElements * ops::kPanelColumns) / ops::step_bytes(true);
}

bool holds_scales(const TensorSet& tensors, const std::string& name) {
  const auto is_of = [&](const std::string& end) {
    return name.ends_with(end) && is_quantised(tensors, name.substr(0, name.size() - end.size()));
  };
  return is_of(scales_of("")) || is_of(nn::input_scale_of(""));
}

}  // namespace tessera::load
