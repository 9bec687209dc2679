#include "load/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/json.h"
#include "base/printable.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

/// Role of a tensor in its layer, from the end of the tensor's name.
struct Role {
  const char* end;
  const char* role;
};
constexpr Role kRoles[] = {{".lora_A.weight", "down"},
                           {".lora_B.weight", "up"},
                           {".lora_A.default.weight", "down"},
                           {".lora_B.default.weight", "up"},
                           {".lora_down.weight", "down"},
                           {".lora_up.weight", "up"},
                           {".lora.down.weight", "down"},
                           {".lora.up.weight", "up"},
                           {".lora_linear_layer.down.weight", "down"},
                           {".lora_linear_layer.up.weight", "up"},
                           {".down.weight", "down"},
                           {".up.weight", "up"},
                           {".alpha", "alpha"},
                           {".dora_scale", "dora_scale"},
                           {".lora_magnitude_vector", "magnitude"},
                           {".lora_magnitude_vector.weight", "magnitude"},
                           {".lora_magnitude_vector.default.weight", "magnitude"},
                           {".hada_w1_a", "hada_w1_a"},
                           {".hada_w1_b", "hada_w1_b"},
                           {".hada_w2_a", "hada_w2_a"},
                           {".hada_w2_b", "hada_w2_b"},
                           {".lokr_w1", "lokr_w1"},
                           {".lokr_w1_a", "lokr_w1_a"},
                           {".lokr_w1_b", "lokr_w1_b"},
                           {".lokr_w2", "lokr_w2"},
                           {".lokr_w2_a", "lokr_w2_a"},
                           {".lokr_w2_b", "lokr_w2_b"}};

/// Tensors of a layer, by role.
using Module = std::map<std::string, std::string>;

// Family of adapters with such names, for messages; "": unknown.
std::string family_of(const std::map<std::string, TensorEntry>& entries) {
  const auto any = [&](std::initializer_list<const char*> words) {
    return std::ranges::any_of(entries, [&](const auto& entry) {
      return std::ranges::any_of(
          words, [&](const char* word) { return entry.first.find(word) != std::string::npos; });
    });
  };
  if (any({"joint_blocks"})) return "Stable Diffusion 3";
  if (any({"double_blocks", "single_blocks", "single_transformer_blocks"})) return "FLUX";
  if (any({"noise_refiner", "context_refiner"})) return "Z-Image";
  if (any({"down_blocks", "input_blocks", "up_blocks"})) return "Stable Diffusion 1, 2 or XL";
  if (any({"attn1.to_q", "attn1_to_q"})) return "PixArt";
  if (any({"add_q_proj", "add_k_proj"})) return "Stable Diffusion 3 or FLUX";
  return "";
}

/// State while an adapter file is read.
class Reader {
 public:
  Reader(const std::string& path, double strength, const AdapterNames& names)
      : file_(path), strength_(strength), names_(names) {
    require(!file_.entries().empty(), ErrorCode::model, "{}: an adapter without tensors", path);
    sort();
    read_settings();
  }
  std::map<std::string, nn::WeightChanges> changes();

 private:
  void sort();
  void read_settings();
  [[noreturn]] void refuse(const std::string& tensor, const std::string& reason) const {
    fail(ErrorCode::model, "{} {}", place(tensor), reason);
  }
  std::string place(const std::string& tensor) const {
    return fmt::format("{}: the tensor {}", file_.path(), base::printable(tensor));
  }
  Tensor matrix(const std::string& name) const;
  Tensor take(const Module& module, const char* role) const;
  // Factor of a module's product; with a dora_scale the strength applies to the DoRA instead.
  double strength_of(const Module& module) const {
    return module.contains("dora_scale") ? 1 : strength_;
  }
  double alpha_of(const Module& module, const AdapterRows& rows, int64_t rank) const;
  void check_size(const Module& module, const AdapterLayer& layer, int64_t n, int64_t height,
                  int64_t width) const;
  nn::WeightChange low_rank(const Module& module, const AdapterRows& rows, int64_t n) const;
  nn::WeightChange hadamard(const Module& module, const AdapterRows& rows, int64_t n) const;
  nn::WeightChange kronecker(const Module& module, const AdapterRows& rows, int64_t n) const;
  void add_magnitude(const Module& module, int64_t n, int64_t k, nn::WeightChange& change) const;
  nn::WeightChange change_of(const Module& module, const std::vector<AdapterRows>& rows,
                             int64_t n) const;

  SafetensorsFile file_;
  const double strength_;
  const AdapterNames& names_;
  std::map<std::string, Module> modules_;
  mutable std::set<std::string> used_;          // tensors already used
  base::Json settings_ = base::Json::object();  // from the file, or adapter_config.json
  bool by_part_ = false;                        // keys begin with the part's name
};

// Assigns every tensor a known role in a known layer.
void Reader::sort() {
  std::vector<std::string> unknown;
  for (const auto& [name, entry] : file_.entries()) {
    const Role* role = nullptr;
    for (const Role& candidate : kRoles)
      if (name.ends_with(candidate.end) &&
          (!role || std::string_view(candidate.end).size() > std::string_view(role->end).size()))
        role = &candidate;
    const std::string module =
        role ? name.substr(0, name.size() - std::string_view(role->end).size()) : "";
    if (!role || !names_.find(module)) {
      unknown.push_back(name);
      continue;
    }
    if (!modules_[module].emplace(role->role, name).second)
      refuse(name, fmt::format("and '{}' are the same part of one layer",
                               modules_[module].at(role->role)));
  }
  if (unknown.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(unknown.size(), 3); ++i)
    names += (i > 0 ? ", " : "") + base::printable(unknown[i]).str();
  const std::string family = family_of(file_.entries());
  fail(ErrorCode::model,
       "{}: {} of {} tensors change nothing of this model: {}{}{}; expected an adapter of this "
       "model "
       "in the names of diffusers, peft, kohya, ai-toolkit, ComfyUI or the original files",
       file_.path(), unknown.size(), file_.entries().size(), names,
       unknown.size() > 3 ? ", ..." : "",
       family.empty() ? "" : " (the names look like " + family + ")");
}

void Reader::read_settings() {
  const auto inside = file_.metadata().find("lora_adapter_metadata");
  if (inside != file_.metadata().end()) {
    settings_ = base::parse_json(inside->second, file_.path() + ": lora_adapter_metadata");
    by_part_ = true;
  } else {
    const std::filesystem::path path(file_.path());
    const bool peft = std::ranges::any_of(modules_, [](const auto& module) {
      return module.first.find("base_model.model.") != std::string::npos;
    });
    for (const std::string& name :
         {path.stem().string() + ".adapter_config.json", std::string("adapter_config.json")}) {
      const std::string beside = (path.parent_path() / name).string();
      if (!peft || !base::is_there(beside)) continue;
      settings_ = base::read_json(beside);
      break;
    }
  }
  require(settings_.is_object(), ErrorCode::model, "{}: the settings of the adapter are no object",
          file_.path());
}

Tensor Reader::matrix(const std::string& name) const {
  if (!tensor::is_float(file_.dtype(name)))
    refuse(name, fmt::format("is {}; expected floats", tensor::name_of(file_.dtype(name))));
  const Tensor x = ops::cast(file_.get(name), DType::f32).contiguous();
  used_.insert(name);
  if (x.elements() == 0) refuse(name, "is empty: an adapter of rank 0");
  if (!ops::all_finite(x)) refuse(name, "holds NaN or infinity");
  return x;
}

// A matrix of a layer; a convolution filter is flattened to a matrix.
Tensor Reader::take(const Module& module, const char* role) const {
  const auto it = module.find(role);
  if (it == module.end())
    refuse(module.begin()->second, fmt::format("is there without its '{}'", role));
  Tensor x = matrix(it->second);
  if (x.rank() > 2) return x.reshape({x.size(0), x.elements() / x.size(0)});
  if (x.rank() != 2) refuse(it->second, fmt::format("is {}; expected a matrix", x.shape().str()));
  return x;
}

// A number of the settings for a layer: of a pattern matching the end of the layer's name, or the
// common value.
std::optional<double> setting(const base::Json& settings, const std::string& part,
                              const std::string& layer, const char* pattern, const char* common) {
  const auto patterns = settings.find(part + pattern);
  if (patterns != settings.end() && patterns->is_object())
    for (const auto& [key, value] : patterns->items())
      if (value.is_number() && (layer == key || layer.ends_with("." + key)))
        return value.get<double>();
  const auto all = settings.find(part + common);
  if (all != settings.end() && all->is_number()) return all->get<double>();
  return std::nullopt;
}

double Reader::alpha_of(const Module& module, const AdapterRows& rows, int64_t rank) const {
  const auto it = module.find("alpha");
  double alpha = double(rank);
  if (it != module.end()) {
    used_.insert(it->second);
    if (!tensor::is_float(file_.dtype(it->second)) || file_.get(it->second).elements() != 1)
      refuse(it->second, "is no single float");
    alpha = double(file_.get(it->second).to_floats().front());
    if (!std::isfinite(alpha)) refuse(it->second, "is not finite");
    return alpha / double(rank);
  }
  const std::string part = by_part_ ? rows.part + "." : "";
  if (const auto value = setting(settings_, part, rows.layer.name, "alpha_pattern", "lora_alpha"))
    alpha = *value;
  if (!std::isfinite(alpha)) refuse(module.begin()->second, "has an alpha that is not finite");
  const auto stabilised = settings_.find(part + "use_rslora");
  const bool root =
      stabilised != settings_.end() && stabilised->is_boolean() && stabilised->get<bool>();
  return alpha / (root ? std::sqrt(double(rank)) : double(rank));
}

// Elements times a factor, in f64. Throws Error(model) naming the tensor for a result that is not
// finite.
Tensor scaled(const std::vector<double>& values, double by, const tensor::Shape& shape,
              const std::string& where) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<float>(value * by));
  const Tensor x = Tensor::from(std::span<const float>(floats), shape);
  require(ops::all_finite(x), ErrorCode::model,
          "{} is not finite any more when it is multiplied by its alpha and strength", where);
  return x;
}

// Checks the size against the layer before such a matrix is allocated.
void Reader::check_size(const Module& module, const AdapterLayer& layer, int64_t n, int64_t height,
                        int64_t width) const {
  const auto name_of = [&](const char* role) {
    const auto it = module.find(role);
    return it == module.end() ? module.begin()->second : it->second;
  };
  if (width != layer.k)
    refuse(name_of("down"),
           fmt::format("reads {} channels; the layer '{}' has {}", width, layer.name, layer.k));
  if (height != n)
    refuse(name_of("up"), fmt::format("gives {} channels; the layer '{}'{} has {}", height,
                                      layer.name, n != layer.n ? " and those beside it" : "", n));
}

nn::WeightChange Reader::low_rank(const Module& module, const AdapterRows& rows, int64_t n) const {
  nn::WeightChange change;
  change.down = take(module, "down");
  change.up = take(module, "up");
  if (change.down.size(0) != change.up.size(1))
    refuse(module.at("down"), fmt::format("is {} and its pair {}: two ranks",
                                          change.down.shape().str(), change.up.shape().str()));
  check_size(module, rows.layer, n, change.up.size(0), change.down.size(1));
  const double scale = strength_of(module) * alpha_of(module, rows, change.down.size(0));
  const std::vector<float> up = change.up.to_floats();
  change.up = scaled({up.begin(), up.end()}, scale, change.up.shape(), place(module.at("up")));
  return change;
}

// Product a b of f32 matrices, in f64.
std::vector<double> product(const Tensor& a, const Tensor& b) {
  const int64_t n = a.size(0), rank = a.size(1), k = b.size(1);
  std::vector<double> values(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t j = 0; j < k; ++j)
        values[static_cast<size_t>(i * k + j)] += double(a.row<float>(i)[r]) * b.row<float>(r)[j];
  return values;
}

nn::WeightChange Reader::hadamard(const Module& module, const AdapterRows& rows, int64_t n) const {
  const Tensor a = take(module, "hada_w1_a"), b = take(module, "hada_w1_b");
  const Tensor c = take(module, "hada_w2_a"), d = take(module, "hada_w2_b");
  if (a.size(1) != b.size(0) || c.size(1) != d.size(0))
    refuse(module.at("hada_w1_a"), "and the others of its layer do not fit each other");
  check_size(module, rows.layer, n, a.size(0), b.size(1));
  check_size(module, rows.layer, n, c.size(0), d.size(1));
  const double scale = strength_of(module) * alpha_of(module, rows, b.size(0));
  const tensor::Shape shape{n, rows.layer.k};
  nn::WeightChange change;
  change.dense = [=, where = place(module.at("hada_w1_a"))] {
    std::vector<double> products = product(a, b);
    const std::vector<double> factors = product(c, d);
    for (size_t i = 0; i < products.size(); ++i) products[i] *= factors[i];
    return scaled(products, scale, shape, where);
  };
  return change;
}

/// A factor of a Kronecker product: a matrix, or a product of two.
struct Factor {
  Tensor a, b;
  int64_t height() const { return a.size(0); }
  int64_t width() const { return b.defined() ? b.size(1) : a.size(1); }
  std::vector<double> elements() const {
    if (b.defined()) return product(a, b);
    const std::vector<float> values = a.to_floats();
    return {values.begin(), values.end()};
  }
};

// Elements of the Kronecker product, row by row.
std::vector<double> kronecker_product(const Factor& w1, const Factor& w2) {
  const std::vector<double> first = w1.elements(), second = w2.elements();
  std::vector<double> products;
  products.reserve(first.size() * second.size());
  for (int64_t i = 0; i < w1.height(); ++i)
    for (int64_t p = 0; p < w2.height(); ++p)
      for (int64_t j = 0; j < w1.width(); ++j)
        for (int64_t q = 0; q < w2.width(); ++q)
          products.push_back(first[static_cast<size_t>(i * w1.width() + j)] *
                             second[static_cast<size_t>(p * w2.width() + q)]);
  return products;
}

nn::WeightChange Reader::kronecker(const Module& module, const AdapterRows& rows, int64_t n) const {
  const auto factor = [&](const std::string& name) -> Factor {
    if (module.contains(name)) return {take(module, name.c_str()), {}};
    Factor two{take(module, (name + "_a").c_str()), take(module, (name + "_b").c_str())};
    if (two.a.size(1) != two.b.size(0))
      refuse(module.at(name + "_a"), "and its pair are of two ranks");
    return two;
  };
  const Factor w1 = factor("lokr_w1"), w2 = factor("lokr_w2");
  const int64_t k = rows.layer.k;
  const auto times = [](int64_t a, int64_t b, int64_t most) {  // saturates above `most`
    return std::min(a, most + 1) * std::min(b, most + 1);
  };
  check_size(module, rows.layer, n, times(w1.height(), w2.height(), n),
             times(w1.width(), w2.width(), k));
  const int64_t rank = w2.b.defined() ? w2.b.size(0) : w1.b.defined() ? w1.b.size(0) : 0;
  if (const auto alpha = module.find("alpha"); alpha != module.end()) used_.insert(alpha->second);
  const double scale = strength_of(module) * (rank > 0 ? alpha_of(module, rows, rank) : 1);
  nn::WeightChange change;
  change.dense = [=, where = place(module.begin()->second)] {
    return scaled(kronecker_product(w1, w2), scale, {n, k}, where);
  };
  return change;
}

// DoRA norms. The shape of kohya's tensor says whether the norms are of columns (older files).
void Reader::add_magnitude(const Module& module, int64_t n, int64_t k,
                           nn::WeightChange& change) const {
  const bool peft = module.contains("magnitude");
  const auto it = module.find(peft ? "magnitude" : "dora_scale");
  if (it == module.end()) return;
  const Tensor x = matrix(it->second);
  change.by_columns = !peft && x.rank() == 2 && x.size(0) == 1 && x.size(1) == k;
  if (x.elements() != (change.by_columns ? k : n))
    refuse(it->second, fmt::format("is {}; expected {} norms of rows", x.shape().str(), n));
  change.magnitude = x.reshape({x.elements()});
  change.blend = peft ? 1 : static_cast<float>(strength_);
}

// The change of all rows of a module, checked against the module's layers.
nn::WeightChange Reader::change_of(const Module& module, const std::vector<AdapterRows>& rows,
                                   int64_t n) const {
  const bool loha = module.contains("hada_w1_a") || module.contains("hada_w1_b");
  const bool lokr =
      std::ranges::any_of(module, [](const auto& part) { return part.first.starts_with("lokr"); });
  const bool pair = module.contains("down") || module.contains("up");
  if (!loha && !lokr && !pair)
    refuse(module.begin()->second, "is there without the matrices of its layer");
  if (int{loha} + int{lokr} + int{pair} > 1)
    refuse(module.begin()->second, "is one of two kinds of adapters of the same layer");
  nn::WeightChange change = loha   ? hadamard(module, rows.front(), n)
                            : lokr ? kronecker(module, rows.front(), n)
                                   : low_rank(module, rows.front(), n);
  add_magnitude(module, n, rows.front().layer.k, change);
  for (const auto& [role, name] : module)
    if (!used_.contains(name)) refuse(name, "has no use beside the others of its layer");
  if (change.magnitude.defined() && change.by_columns && rows.size() > 1)
    refuse(module.at("dora_scale"), "is about columns of several layers together");
  return change;
}

// Rows of a matrix or a vector, with the halves in the model's order.
Tensor rows_of(const Tensor& x, const AdapterRows& rows) {
  if (!x.defined()) return x;
  const int64_t n = rows.layer.n, half = n / 2;
  Tensor own_rows = x.slice(0, rows.begin, rows.begin + n).contiguous();
  if (!rows.swapped) return own_rows;
  return ops::concat_rows({own_rows.slice(0, half, n), own_rows.slice(0, 0, half)});
}

std::map<std::string, nn::WeightChanges> Reader::changes() {
  std::map<std::string, nn::WeightChanges> changes;
  std::map<std::string, std::string> names;
  for (const auto& [name, module] : modules_) {
    const std::vector<AdapterRows>& rows = *names_.find(name);
    int64_t n = 0;
    for (const AdapterRows& part : rows) n += part.layer.n;
    const nn::WeightChange whole = change_of(module, rows, n);
    for (const AdapterRows& part : rows) {
      const std::string key = part.part + "." + part.layer.name;
      const auto [before, first] = names.emplace(key, name);
      if (!first)
        refuse(module.begin()->second,
               fmt::format("changes the layer '{}', which {} changes as well", part.layer.name,
                           base::printable(before->second).str()));
      nn::WeightChange change = whole;
      change.up = rows_of(whole.up, part);
      if (whole.dense)
        change.dense = [dense = whole.dense, part] { return rows_of(dense(), part); };
      if (!whole.by_columns) change.magnitude = rows_of(whole.magnitude, part);
      changes[part.part][part.layer.name + ".weight"] = {change};
    }
  }
  return changes;
}

}  // namespace

std::map<std::string, nn::WeightChanges> read_adapter(const std::string& path, double strength,
                                                      const AdapterNames& names) {
  require(std::isfinite(strength) && std::abs(strength) <= 1000, ErrorCode::usage,
          "`loras` {}: a strength of {}; expected a number from -1000 to 1000", path, strength);
  return Reader(path, strength, names).changes();
}

}  // namespace tessera::load
