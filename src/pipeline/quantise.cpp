#include "pipeline/quantise.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "admission/memory_plan.h"
#include "base/fail.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/output_folder.h"
#include "base/printable.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "load/gguf_language.h"
#include "load/quantisation.h"
#include "load/quantised_config.h"
#include "load/weights_file.h"
#include "ops/finite.h"
#include "ops/packing.h"
#include "pipeline/check_request.h"
#include "tensor/uncounted.h"
#include "tessera/run_files.h"

namespace tessera::pipeline {
namespace {

namespace fs = std::filesystem;
using load::PlannedTensor;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kPiece = int64_t{4} << 20;  // bytes of a copied file at a time
constexpr int kDeepest = 8;                   // nested folders in a copy
constexpr int64_t kLooks = 200;               // progress calls

const load::Component& part_with_experts(const runtime::ModelState& state, bool dense) {
  require(state.spec || state.language, ErrorCode::usage,
          "'{}' is no transformer and no language model: there are no experts to quantise",
          state.name);
  const load::Component& part = state.folder.component(state.language ? "model" : "transformer");
  require(!part.quantised.experts, ErrorCode::usage,
          "'{}' holds its experts in {} already; run it as it is", state.name,
          part.quantised.int4 ? "int4" : "int8");
  require(!dense || state.language, ErrorCode::usage,
          "`dense` is for language models; of '{}' leave it out, or give `dtype`", state.name);
  return part;
}

// The rules of a run with the same options; none: routed experts only.
load::QuantiseRules rules_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  if (!request.dtype && request.rules.empty()) return {};
  require(state.spec.has_value(), ErrorCode::usage,
          "`dtype` and `quantise_rules` are for pipelines of images and videos; of '{}' give "
          "`experts` and `dense`",
          state.name);
  RunOptions as;
  as.precision = request.dtype.value_or(Precision::bf16);
  as.quantise_rules = request.rules;
  const load::QuantiseRules rules = runtime::rules_of(as);
  require(!rules.said("scores"), ErrorCode::usage,
          "`quantise_rules` {}: scores are no weights; give this rule to the run", request.rules);
  return rules;
}

/// A matrix, and its form: int4 or int8, in the order of the kernels for whole panels: alone, or a
/// half of a pair's panels.
struct Chosen {
  std::string name;
  bool int4 = false;
  bool panels = false;
  std::string up = {}, gate = {};  ///< a gate's up, an up's gate
};

// Each with the other matrix of its pair, if any.
void choose(const load::TensorSet& tensors, const std::map<std::string, std::string>& pairs,
            const std::vector<std::string>& names, bool int4, std::vector<Chosen>& chosen) {
  std::set<std::string> left(names.begin(), names.end());
  for (const auto& [gate, up] : pairs) {
    if (!left.contains(gate) || !left.contains(up)) continue;
    const std::vector<int64_t>& sizes = tensors.entry(gate).sizes;
    if (!ops::fills_panels(sizes.front(), sizes.back(), true)) continue;
    chosen.push_back({.name = gate, .int4 = int4, .panels = true, .up = up});
    chosen.push_back({.name = up, .int4 = int4, .panels = true, .gate = gate});
    left.erase(gate);
    left.erase(up);
  }
  std::set<std::string> paired;
  for (const auto& [gate, up] : pairs) paired.insert({gate, up});
  for (const std::string& name : left) {
    const std::vector<int64_t>& sizes = tensors.entry(name).sizes;
    const bool panels =
        !paired.contains(name) && ops::fills_panels(sizes.front(), sizes.back(), false);
    chosen.push_back({.name = name, .int4 = int4, .panels = panels});
  }
}

// The matrices packed by the model's description with the dtype of routed experts; with `dense`
// also those with the model's own dtype. Routers are excluded, and so is a head equal to the table
// of embeddings.
std::vector<Chosen> matrices_of(const runtime::ModelState& state, const load::TensorSet& tensors,
                                const QuantiseRequest& request) {
  const tensor::Uncounted aside;
  const load::MetaWeights asked(tensors);
  nn::Portion all = state.language ? state.language->spec().whole() : state.spec->whole();
  all.expert_dtype = DType::i8;
  if (state.language)
    state.language->spec().make(asked, all, DType::bf16, 0);
  else
    state.spec->make(asked, all, DType::bf16);
  const bool int4 = request.experts == Precision::int4;
  const std::vector<std::string> experts = asked.packed_in(DType::i8);
  for (const std::string& name : experts) {
    const int64_t k = tensors.entry(name).sizes.back();
    require(!int4 || k % 2 == 0, ErrorCode::usage,
            "`experts` int4: the rows of {} are of {} elements, and two of them share a byte; "
            "choose int8",
            base::printable(name), k);
  }
  require(!experts.empty(), ErrorCode::usage, "'{}' has no routed experts{}", state.name,
          state.spec ? ": give `dtype` int8 or int4, which quantises all products"
                     : ", and nothing is quantised without them: run it as it is");
  std::vector<Chosen> chosen;
  choose(tensors, asked.pairs(), experts, int4, chosen);
  if (request.dense) choose(tensors, asked.pairs(), asked.packed_in(DType::bf16), false, chosen);
  return chosen;
}

// The matrices of a part that a run with these rules quantises at load.
std::vector<Chosen> products_of(const runtime::ModelState& state, const std::string& part,
                                const load::QuantiseRules& rules, load::TensorSet tensors) {
  tensors.quantise(rules, load::products_of(part));
  const auto asked = std::make_shared<const load::MetaWeights>(tensors);
  const std::optional<DType> experts =
      rules.experts() == load::QuantiseRules::Bits::none ? std::optional<DType>() : DType::i8;
  std::vector<std::string> eight, four;
  for (const auto& [name, form] : state.forms_of(part, asked, experts))
    if (form.dtype == DType::i8) (form.int4 ? four : eight).push_back(name);
  std::vector<Chosen> chosen;
  choose(tensors, asked->pairs(), eight, false, chosen);
  choose(tensors, asked->pairs(), four, true, chosen);
  return chosen;
}

/// The tensors of the written file, in order, and the progress.
class NewWeights {
 public:
  NewWeights(const load::TensorSet& tensors, const std::vector<Chosen>& quantised,
             const RunControl& control)
      : tensors_(tensors), control_(control), matrices_(quantised.size()) {
    std::set<std::string> set;
    for (const Chosen& one : quantised) {
      total_ += tensors.entry(one.name).bytes();
      set.insert(one.name);
    }
    for (const Chosen& one : quantised)  // first: aligned for mapped use
      if (one.panels) add_panels(one);
    for (const std::string& name : tensors.names())
      if (!set.contains(name)) add_copy(name);
    for (const Chosen& one : quantised)
      if (!one.panels) add_matrix(one);
    // Aligned tensors first, then scales and the rest, the widest first: each begins at a multiple
    // of its elements.
    const auto even = [](const PlannedTensor& x) { return x.bytes % 8 == 0; };
    std::vector<PlannedTensor> rest;
    for (const Chosen& one : quantised)
      if (!holds_scales(one)) rest.push_back(scales(one));
    std::ranges::remove_copy_if(all_, std::back_inserter(rest), even);
    std::erase_if(all_, std::not_fn(even));
    std::ranges::stable_sort(rest, std::greater(), [](const PlannedTensor& x) {
      return x.bytes / std::max<int64_t>(elements(x.sizes), 1);
    });
    std::ranges::move(rest, std::back_inserter(all_));
  }
  const std::vector<PlannedTensor>& tensors() const { return all_; }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const PlannedTensor& x : all_) sum += x.bytes;
    return sum;
  }
  /// For all finished matrices.
  std::vector<QuantisedMatrix> errors() const {
    std::vector<QuantisedMatrix> each;
    for (const auto& [name, one] : errors_) each.push_back(one);
    return each;
  }

 private:
  static int64_t elements(const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  }
  // Panels of int4 have their scales within.
  static bool holds_scales(const Chosen& one) { return one.int4 && one.panels; }
  void add_copy(const std::string& name) {
    const load::TensorEntry& entry = tensors_.entry(name);
    all_.push_back({name, entry.dtype, entry.sizes, entry.bytes(), [this, &entry, name] {
                      Tensor bytes = Tensor::empty({entry.bytes()}, DType::u8);
                      tensors_.file(name).read(name, bytes.data<std::byte>());
                      return bytes;
                    }});
  }
  void add_matrix(const Chosen& one) {
    const load::TensorEntry& entry = tensors_.entry(one.name);
    std::vector<int64_t> sizes = entry.sizes;
    if (one.int4) sizes.back() /= 2;
    all_.push_back({one.name, one.int4 ? "U8" : "I8", sizes, elements(sizes), [this, one] {
                      const ops::StoredMatrix rows = quantised(one);
                      keep_scales(one, rows);
                      show(tensors_.entry(one.name).bytes());
                      return rows.values;
                    }});
  }
  // A matrix in the order of the kernels, or half of such a pair: gate's bytes are first.
  void add_panels(const Chosen& one) {
    const std::vector<int64_t>& rows = tensors_.entry(one.name).sizes;
    const bool half = !one.up.empty() || !one.gate.empty();
    const int64_t width = half ? ops::kTileColumns : ops::kPanelColumns,
                  bytes = ops::step_bytes(one.int4) / (half ? 2 : 1);
    const std::vector<int64_t> sizes{rows[0] / width, rows[1] / ops::kStepElements, bytes};
    all_.push_back({one.name, one.int4 ? "U8" : "I8", sizes, elements(sizes), [this, one, half] {
                      if (one.gate.empty()) turn(one);
                      show(tensors_.entry(one.name).bytes());
                      const Tensor all = panels_.reshape({panels_.elements()});
                      const int64_t middle = half ? all.elements() / 2 : all.elements();
                      return one.gate.empty() ? all.slice(0, 0, middle)
                                              : all.slice(0, middle, all.elements());
                    }});
  }
  void turn(const Chosen& one) {
    const ops::StoredMatrix rows = quantised(one);
    ops::StoredMatrix up;
    if (!one.up.empty()) up = quantised({.name = one.up, .int4 = one.int4});
    panels_ = ops::panels_of(rows, up).values;
    keep_scales(one, rows);
    if (!one.up.empty()) keep_scales({.name = one.up, .int4 = one.int4, .panels = true}, up);
  }
  void keep_scales(const Chosen& one, const ops::StoredMatrix& rows) {
    ++made_;
    if (!holds_scales(one)) scales_[one.name] = rows.scales;
  }
  ops::StoredMatrix quantised(const Chosen& one) {
    const Tensor floats = tensors_.get(one.name);
    ops::StoredMatrix rows = one.int4 ? ops::quantise_groups(floats) : ops::quantise_rows(floats);
    require(ops::all_finite(rows.scales), ErrorCode::model,
            "{}: tensor {} holds values that are no numbers (NaN or infinity): get the file again",
            tensors_.file(one.name).path(), base::printable(one.name));
    errors_[one.name] = {one.name, one.int4 ? 4 : 8, ops::relative_error(rows, floats)};
    return rows;
  }
  PlannedTensor scales(const Chosen& one) {
    const std::vector<int64_t>& of = tensors_.entry(one.name).sizes;
    std::vector<int64_t> sizes{of.front()};
    if (one.int4) sizes.push_back(ops::groups_of(of.back()));
    return {load::scales_of(one.name), one.int4 ? "BF16" : "F32", sizes,
            elements(sizes) * (one.int4 ? 2 : 4), [this, one] {
              const auto made = scales_.find(one.name);  // not for a later matrix
              return made != scales_.end() ? made->second : quantised(one).scales;
            }};
  }
  void show(int64_t bytes) {
    const int64_t before = done_ * kLooks / total_, after = (done_ + bytes) * kLooks / total_;
    done_ += bytes;
    if (control_.on_progress && (after > before || made_ == 1))
      control_.on_progress({Phase::quantise, made_, static_cast<int>(matrices_), clock_.seconds()});
  }

  const load::TensorSet& tensors_;
  const RunControl& control_;
  std::vector<PlannedTensor> all_;
  Tensor panels_;  // for the current matrix or pair
  std::map<std::string, Tensor> scales_;
  std::map<std::string, QuantisedMatrix> errors_;
  size_t matrices_ = 0;
  int made_ = 0;                  // matrices
  int64_t total_ = 0, done_ = 0;  // bytes of matrices
  base::Stopwatch clock_;
};

/// A file to copy unchanged.
struct Copied {
  fs::path from, to;  ///< `to` in the new folder
  int64_t bytes = 0;
};

bool is_weights(const fs::path& file) {
  const std::string name = file.filename().string(), extension = file.extension().string();
  const std::set<std::string> kinds{".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"};
  return kinds.contains(extension) || name.ends_with(".index.json") ||
         (extension == ".json" && name.find(".safetensors.index.") != std::string::npos);
}

/// All files of a model except hidden ones and those with `replaced` weights. Links to files are
/// followed within the folder, or to the blobs of the repository in the hub's cache; other links,
/// and links to folders, could copy foreign data.
class FileList {
 public:
  FileList(const fs::path& model, std::set<fs::path> replaced) : replaced_(std::move(replaced)) {
    std::error_code error;
    root_ = fs::canonical(model, error);
    require(!error, ErrorCode::model, "'{}': {}", model.string(), error.message());
    if (root_.parent_path().filename() == "snapshots")
      blobs_ = root_.parent_path().parent_path() / "blobs";
    list(model, "", 0);
  }
  const std::vector<Copied>& files() const { return files_; }
  /// Links without a copy, by name in the folder.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void list(const fs::path& folder, const fs::path& below, int depth) {
    require(depth < kDeepest, ErrorCode::model,
            "'{}': folders in folders, {} deep; expected a model", folder.string(), depth);
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      base::check_stop();
      const fs::directory_entry& item = *at;
      const fs::path name = item.path().filename();
      if (name.string().starts_with('.')) continue;
      std::error_code unreadable;  // reported at its copy
      const bool inner = item.is_directory(unreadable);
      if (replaced_.contains(folder) && !inner && (is_weights(name) || name == "config.json"))
        continue;
      if (item.is_symlink(unreadable) && (inner || !owns(item.path())))
        left_out_.push_back((below / name).string());
      else if (inner)
        list(item.path(), below / name, depth + 1);
      else
        files_.push_back(
            {item.path(), below / name, static_cast<int64_t>(item.file_size(unreadable))});
    }
    require(!error, ErrorCode::model, "'{}' cannot be listed: {}", folder.string(),
            error.message());
  }
  bool owns(const fs::path& link) const {
    std::error_code error;
    const fs::path target = fs::canonical(link, error);
    const auto below = [&](const fs::path& folder) {
      return std::mismatch(folder.begin(), folder.end(), target.begin(), target.end()).first ==
             folder.end();
    };
    return !error && (below(root_) || (!blobs_.empty() && below(blobs_)));
  }

  fs::path root_, blobs_;
  std::set<fs::path> replaced_;
  std::vector<Copied> files_;
  std::vector<std::string> left_out_;
};

// Without an own part the new folder would be no pipeline.
void check_links(const runtime::ModelState& state, const FileList& list,
                 const RunControl& control) {
  for (const std::string& link : list.left_out()) {
    for (const load::Component& part : state.folder.components)
      require(state.language || fs::path(part.folder).lexically_relative(state.folder.path) != link,
              ErrorCode::usage,
              "'{}' of '{}' is a link to a folder elsewhere, and the new folder would lack it: put "
              "the files themselves there",
              link, state.folder.path);
    if (control.on_note)
      control.on_note(fmt::format("{} was left out: it is a link out of the model's folder",
                                  base::printable(link)));
  }
}

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) base::refuse_output("make", path.string(), error.value());
}

void copy_file(const Copied& file, const fs::path& folder) {
  make_folders((folder / file.to).parent_path());
  const base::InputFile from(file.from.string());
  base::OutputFile to((folder / file.to).string());
  std::string piece;
  for (int64_t at = 0; at < from.size(); at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, from.size() - at)));
    from.read(at, piece.data(), static_cast<int64_t>(piece.size()));
    to.write(piece.data(), piece.size());
  }
  to.commit();
}

void check_space(const std::string& output, int64_t bytes) {
  std::error_code error;  // an invalid path is refused at the creation of its folder
  const fs::path target = fs::weakly_canonical(fs::absolute(output, error), error);
  const fs::space_info space = fs::space(target.parent_path(), error);
  require(error || static_cast<double>(space.available) >= static_cast<double>(bytes),
          ErrorCode::usage,
          "'{}' would take {}, and its disk has {} left; free some space, or write to another disk",
          output, admission::amount(double(bytes), double(space.available)),
          admission::amount(double(space.available), double(bytes)));
}

std::string stem_of(const load::TensorSet& tensors) {
  const std::string file = fs::path(tensors.files().front().path()).filename().string();
  return file.starts_with("diffusion_pytorch_model") ? "diffusion_pytorch_model" : "model";
}

/// A part of the model that is written again.
struct Part {
  const load::Component& component;
  load::TensorSet tensors;
  std::vector<Chosen> chosen;
  load::QuantisedForm form;
};

std::vector<Part> experts_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  const load::Component& part = part_with_experts(state, request.dense.has_value());
  Part one{part, load::open_weights(part), {}, {}};
  one.chosen = matrices_of(state, one.tensors, request);
  one.form = {.int4 = request.experts == Precision::int4, .dense = request.dense.has_value()};
  return {std::move(one)};
}

std::vector<Part> parts_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  const load::QuantiseRules rules = rules_of(state, request);
  if (rules.empty()) return experts_of(state, request);
  std::vector<Part> parts;
  for (const std::string& name : state.parts_with_products()) {
    const load::Component& part = state.folder.component(name);
    require(!part.quantised.experts && !part.quantised.dense, ErrorCode::usage,
            "'{}' is quantised already ({}); run it as it is", state.name, name);
    Part one{part, load::open_weights(part), {}, {}};
    one.chosen = products_of(state, name, rules, one.tensors);
    if (one.chosen.empty()) continue;
    const bool routed = name == "transformer" && !state.geometry().experts.empty() &&
                        rules.experts() != load::QuantiseRules::Bits::none;
    one.form = {.experts = routed,
                .int4 = routed && rules.experts() == load::QuantiseRules::Bits::int4,
                .rules = rules.text()};
    parts.push_back(std::move(one));
  }
  require(!parts.empty(), ErrorCode::usage,
          "the rules name no product of '{}': nothing would be quantised", state.name);
  return parts;
}

// The notes of a part's check.
std::string check_part(const runtime::ModelState& state, const std::string& name) {
  if (state.language) return state.language->check(state.dtype());
  return name == "transformer" ? state.check_transformer() : state.check_text_encoder(name);
}

void write_part(const Part& part, const fs::path& own, NewWeights& weights) {
  make_folders(own);
  load::QuantisedForm form = part.form;
  form.panels = std::ranges::any_of(part.chosen, &Chosen::panels);
  const std::string config = load::quantised_config(part.component.folder + "/config.json", form);
  base::OutputFile description((own / "config.json").string());
  description.write(config.data(), config.size());
  description.commit();
  load::write_safetensors((own / (stem_of(part.tensors) + ".safetensors")).string(),
                          weights.tensors(), part.tensors.files().front().metadata());
}

}  // namespace

QuantiseResult quantise(const runtime::ModelState& state, const QuantiseRequest& request,
                        const RunControl& control) {
  check_request(request);
  require(state.files.empty() &&
              (!state.language || !load::is_whole_model(state.folder.component("model"))),
          ErrorCode::usage,
          "a model is quantised from its folder; leave files in place of its weights out");
  const base::BindStop stop(control.stop);
  check_files({state.folder.path, {}, {{"-o", request.output, FileKind::model}}});
  const tensor::BindScope bind(state.workers.scope());
  const std::vector<Part> parts = parts_of(state, request);
  std::set<fs::path> replaced;
  std::list<NewWeights> weights;  // planned tensors refer to these
  int64_t bytes = 0;
  for (const Part& part : parts) {
    if (const std::string said = check_part(state, part.component.name);
        control.on_note && !said.empty())
      control.on_note(said);
    replaced.insert(part.component.folder);
    bytes += weights.emplace_back(part.tensors, part.chosen, control).bytes();
  }
  const fs::path model = state.folder.path;
  const FileList list(model, replaced);
  check_links(state, list, control);
  for (const Copied& file : list.files()) bytes += file.bytes;
  check_space(request.output, bytes);

  base::OutputFolder folder(request.output);
  for (const Copied& file : list.files()) copy_file(file, folder.beside());
  QuantiseResult made;
  auto written = weights.begin();
  for (const Part& part : parts) {
    const fs::path inside = fs::path(part.component.folder).lexically_relative(model);
    write_part(part, (fs::path(folder.beside()) / inside).lexically_normal(), *written);
    made.matrices += static_cast<int64_t>(part.chosen.size());
    made.bytes_before += part.tensors.bytes();
    made.bytes += written->bytes();
    std::ranges::move(written->errors(), std::back_inserter(made.each));
    ++written;
  }
  folder.commit();
  return made;
}

}  // namespace tessera::pipeline
