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
#include "load/nibble_blocks.h"
#include "load/quantisation.h"
#include "load/quantised_config.h"
#include "load/weights_file.h"
#include "nn/input_records.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "ops/packing.h"
#include "pipeline/check_request.h"
#include "pipeline/generate.h"
#include "pipeline/smoothing.h"
#include "runtime/open_model.h"
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

// The rules of a run with the same options; none: routed experts only. Files in block formats keep
// their bits, as in a run.
load::QuantiseRules rules_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  load::QuantiseRules blocks;
  if (!state.files.empty()) blocks.add("blocks=int8", "blocks");
  if (!request.dtype && request.rules.empty()) return blocks;
  require(state.spec.has_value(), ErrorCode::usage,
          "`dtype` and `quantise_rules` are for pipelines of images and videos; of '{}' give "
          "`experts` and `dense`",
          state.name);
  RunOptions as;
  as.precision = request.dtype.value_or(Precision::bf16);
  as.quantise_rules = request.rules;
  load::QuantiseRules rules = runtime::rules_of(as);
  for (const char* key : {"scores", "vae"})
    require(!rules.said(key), ErrorCode::usage,
            "`quantise_rules` {}: {} is not stored in a folder; give this rule to the run",
            request.rules, key);
  if (blocks.empty()) return rules;
  blocks.add(rules.text(), "`quantise_rules`");
  return blocks;
}

/// A matrix, and its form: int4 or int8, in the order of the kernels for whole panels: alone, or a
/// half of a pair's panels.
struct MatrixForm {
  std::string name;
  bool int4 = false;
  bool panels = false;
  std::string up = {}, gate = {};  ///< a gate's up, an up's gate
};

// Each with the other matrix of its pair, if any.
void choose_matrices(const load::TensorSet& tensors,
                     const std::map<std::string, std::string>& pairs,
                     const std::vector<std::string>& names, bool int4,
                     std::vector<MatrixForm>& matrices) {
  std::set<std::string> remaining(names.begin(), names.end());
  for (const auto& [gate, up] : pairs) {
    if (!remaining.contains(gate) || !remaining.contains(up)) continue;
    const std::vector<int64_t>& sizes = tensors.entry(gate).sizes;
    if (!ops::fills_panels(sizes.front(), sizes.back(), true)) continue;
    matrices.push_back({.name = gate, .int4 = int4, .panels = true, .up = up});
    matrices.push_back({.name = up, .int4 = int4, .panels = true, .gate = gate});
    remaining.erase(gate);
    remaining.erase(up);
  }
  std::set<std::string> paired;
  for (const auto& [gate, up] : pairs) paired.insert({gate, up});
  for (const std::string& name : remaining) {
    const std::vector<int64_t>& sizes = tensors.entry(name).sizes;
    const bool panels =
        !paired.contains(name) && ops::fills_panels(sizes.front(), sizes.back(), false);
    matrices.push_back({.name = name, .int4 = int4, .panels = panels});
  }
}

// The matrices packed by the model's description with the dtype of routed experts; with `dense`
// also those with the model's own dtype. Routers are excluded, and so is a head equal to the table
// of embeddings.
std::vector<MatrixForm> matrices_of(const runtime::ModelState& state,
                                    const load::TensorSet& tensors,
                                    const QuantiseRequest& request) {
  const tensor::Uncounted aside;
  const load::MetaWeights meta_weights(tensors);
  nn::Portion portion = state.language ? state.language->spec().whole() : state.spec->whole();
  portion.expert_dtype = DType::i8;
  if (state.language)
    state.language->spec().make(meta_weights, portion, DType::bf16, 0);
  else
    state.spec->make(meta_weights, portion, DType::bf16);
  const bool int4 = request.experts == Precision::int4;
  const std::vector<std::string> experts = meta_weights.packed_in(DType::i8);
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
  std::vector<MatrixForm> matrices;
  choose_matrices(tensors, meta_weights.pairs(), experts, int4, matrices);
  if (request.dense)
    choose_matrices(tensors, meta_weights.pairs(), meta_weights.packed_in(DType::bf16), false,
                    matrices);
  return matrices;
}

// The matrices of a part that a run with these rules quantises at load.
std::vector<MatrixForm> products_of(const runtime::ModelState& state, const std::string& part,
                                    const load::QuantiseRules& rules, load::TensorSet tensors) {
  tensors.quantise(rules, load::products_of(part));
  const auto meta_weights = std::make_shared<const load::MetaWeights>(tensors);
  const std::optional<DType> experts =
      rules.experts() == load::QuantiseRules::Bits::none ? std::optional<DType>() : DType::i8;
  std::vector<std::string> eight, four;
  for (const auto& [name, form] : state.forms_of(part, meta_weights, experts))
    if (form.dtype == DType::i8) (form.int4 ? four : eight).push_back(name);
  std::vector<MatrixForm> matrices;
  choose_matrices(tensors, meta_weights->pairs(), eight, false, matrices);
  choose_matrices(tensors, meta_weights->pairs(), four, true, matrices);
  return matrices;
}

/// The tensors of the written file, in order, and the progress.
class NewWeights {
 public:
  NewWeights(const load::TensorSet& tensors, const std::vector<MatrixForm>& quantised,
             const std::map<std::string, Tensor>& factors, const RunControl& control)
      : tensors_(tensors), control_(control), factors_(factors), matrices_(quantised.size()) {
    std::set<std::string> set;
    for (const MatrixForm& matrix : quantised) {
      total_ += tensors.entry(matrix.name).bytes();
      set.insert(matrix.name);
    }
    for (const MatrixForm& matrix : quantised)  // first: aligned for mapped use
      if (matrix.panels) add_panels(matrix);
    for (const std::string& name : tensors.names())
      if (!set.contains(name)) add_copy(name);
    for (const MatrixForm& matrix : quantised)
      if (!matrix.panels) add_matrix(matrix);
    // Aligned tensors first, then scales and the rest, the widest first: each begins at a multiple
    // of its elements.
    const auto even = [](const PlannedTensor& x) { return x.bytes % 8 == 0; };
    std::vector<PlannedTensor> rest;
    for (const MatrixForm& matrix : quantised)
      if (!holds_scales(matrix)) rest.push_back(scales(matrix));
    for (const auto& [name, x] : factors) rest.push_back(input_scale(name, x));
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
    std::vector<QuantisedMatrix> matrices;
    for (const auto& [name, matrix] : errors_) matrices.push_back(matrix);
    return matrices;
  }

 private:
  static int64_t elements(const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  }
  // Panels of int4 have their scales within.
  static bool holds_scales(const MatrixForm& matrix) { return matrix.int4 && matrix.panels; }
  void add_copy(const std::string& name) {
    const load::TensorEntry& entry = tensors_.entry(name);
    all_.push_back({name, entry.dtype, entry.sizes, entry.bytes(), [this, &entry, name] {
                      Tensor bytes = Tensor::empty({entry.bytes()}, DType::u8);
                      tensors_.file(name).read(name, bytes.data<std::byte>());
                      return bytes;
                    }});
  }
  void add_matrix(const MatrixForm& matrix) {
    const load::TensorEntry& entry = tensors_.entry(matrix.name);
    std::vector<int64_t> sizes = entry.sizes;
    if (matrix.int4) sizes.back() /= 2;
    all_.push_back({matrix.name, matrix.int4 ? "U8" : "I8", sizes, elements(sizes), [this, matrix] {
                      const ops::StoredMatrix rows = quantised(matrix);
                      keep_scales(matrix, rows);
                      show(tensors_.entry(matrix.name).bytes());
                      return rows.values;
                    }});
  }
  // A matrix in the order of the kernels, or half of such a pair: gate's bytes are first.
  void add_panels(const MatrixForm& matrix) {
    const std::vector<int64_t>& rows = tensors_.entry(matrix.name).sizes;
    const bool half = !matrix.up.empty() || !matrix.gate.empty();
    const int64_t width = half ? ops::kTileColumns : ops::kPanelColumns,
                  bytes = ops::step_bytes(matrix.int4) / (half ? 2 : 1);
    const std::vector<int64_t> sizes{rows[0] / width, rows[1] / ops::kStepElements, bytes};
    all_.push_back(
        {matrix.name, matrix.int4 ? "U8" : "I8", sizes, elements(sizes), [this, matrix, half] {
           if (matrix.gate.empty()) turn(matrix);
           show(tensors_.entry(matrix.name).bytes());
           const Tensor panels = panels_.reshape({panels_.elements()});
           const int64_t middle = half ? panels.elements() / 2 : panels.elements();
           return matrix.gate.empty() ? panels.slice(0, 0, middle)
                                      : panels.slice(0, middle, panels.elements());
         }});
  }
  void turn(const MatrixForm& matrix) {
    const ops::StoredMatrix rows = quantised(matrix);
    ops::StoredMatrix up;
    if (!matrix.up.empty()) up = quantised({.name = matrix.up, .int4 = matrix.int4});
    panels_ = ops::panels_of(rows, up).values;
    keep_scales(matrix, rows);
    if (!matrix.up.empty())
      keep_scales({.name = matrix.up, .int4 = matrix.int4, .panels = true}, up);
  }
  void keep_scales(const MatrixForm& matrix, const ops::StoredMatrix& rows) {
    ++finished_;
    if (!holds_scales(matrix)) scales_[matrix.name] = rows.scales;
  }
  ops::StoredMatrix quantised(const MatrixForm& matrix) {
    Tensor floats = tensors_.get(matrix.name);
    const load::TensorFile& file = tensors_.file(matrix.name);
    const auto factors = factors_.find(matrix.name);
    if (factors != factors_.end())
      floats = ops::multiply_row(ops::cast(floats, DType::f32), factors->second);
    const bool keeps =
        factors == factors_.end() && load::has_nibble_blocks(file.entry(matrix.name));
    ops::StoredMatrix rows = !matrix.int4 ? ops::quantise_rows(floats)
                             : keeps      ? load::nibbles_of(file, matrix.name)
                                          : ops::quantise_groups(floats);
    require(ops::all_finite(rows.scales), ErrorCode::model,
            "{}: tensor {} holds values that are no numbers (NaN or infinity): get the file again",
            file.path(), base::printable(matrix.name));
    errors_[matrix.name] = {matrix.name, matrix.int4 ? 4 : 8, ops::relative_error(rows, floats)};
    return rows;
  }
  PlannedTensor scales(const MatrixForm& matrix) {
    const std::vector<int64_t>& shape = tensors_.entry(matrix.name).sizes;
    std::vector<int64_t> sizes{shape.front()};
    if (matrix.int4) sizes.push_back(ops::groups_of(shape.back()));
    return {load::scales_of(matrix.name), matrix.int4 ? "BF16" : "F32", sizes,
            elements(sizes) * (matrix.int4 ? 2 : 4), [this, matrix] {
              const auto it = scales_.find(matrix.name);  // not for a later matrix
              return it != scales_.end() ? it->second : quantised(matrix).scales;
            }};
  }
  static PlannedTensor input_scale(const std::string& name, const Tensor& factors) {
    return {nn::input_scale_of(name), "F32", {factors.size(0)}, factors.bytes(), [factors] {
              return inverse_of(factors);
            }};
  }
  void show(int64_t bytes) {
    const int64_t before = done_ * kLooks / total_, after = (done_ + bytes) * kLooks / total_;
    done_ += bytes;
    if (control_.on_progress && (after > before || finished_ == 1))
      control_.on_progress(
          {Phase::quantise, finished_, static_cast<int>(matrices_), clock_.seconds()});
  }

  const load::TensorSet& tensors_;
  const RunControl& control_;
  const std::map<std::string, Tensor>& factors_;  // for columns of smoothed matrices
  std::vector<PlannedTensor> all_;
  Tensor panels_;  // for the current matrix or pair
  std::map<std::string, Tensor> scales_;
  std::map<std::string, QuantisedMatrix> errors_;
  size_t matrices_ = 0;
  int finished_ = 0;              // matrices
  int64_t total_ = 0, done_ = 0;  // bytes of matrices
  base::Stopwatch clock_;
};

/// A file to copy unchanged.
struct FileCopy {
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
  const std::vector<FileCopy>& files() const { return files_; }
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
  std::vector<FileCopy> files_;
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

void copy_file(const FileCopy& file, const fs::path& folder) {
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

std::string stem_of(const load::Component& part, const load::TensorSet& tensors) {
  if (!part.file.empty()) return part.library == "diffusers" ? "diffusion_pytorch_model" : "model";
  const std::string file = fs::path(tensors.files().front().path()).filename().string();
  return file.starts_with("diffusion_pytorch_model") ? "diffusion_pytorch_model" : "model";
}

/// A part of the model that is written again.
struct Part {
  const load::Component& component;
  load::TensorSet tensors;
  std::vector<MatrixForm> matrices;
  load::QuantisedForm form;
  std::map<std::string, Tensor> factors{};  ///< for columns of smoothed matrices
};

std::vector<Part> experts_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  const load::Component& part = part_with_experts(state, request.dense.has_value());
  Part new_part{part, load::open_weights(part), {}, {}, {}};
  new_part.matrices = matrices_of(state, new_part.tensors, request);
  new_part.form = {.int4 = request.experts == Precision::int4, .dense = request.dense.has_value()};
  return {std::move(new_part)};
}

std::vector<Part> parts_of(const runtime::ModelState& state, const QuantiseRequest& request) {
  const load::QuantiseRules rules = rules_of(state, request);
  if (rules.empty()) return experts_of(state, request);
  std::vector<Part> parts;
  for (const std::string& name : state.parts_with_products()) {
    const load::Component& part = state.folder.component(name);
    require(!part.quantised.experts && !part.quantised.dense, ErrorCode::usage,
            "'{}' is quantised already ({}); run it as it is", state.name, name);
    Part new_part{part, load::open_weights(part), {}, {}, {}};
    new_part.matrices = products_of(state, name, rules, new_part.tensors);
    if (new_part.matrices.empty() && part.file.empty()) continue;
    const bool routed = name == "transformer" && !state.geometry().experts.empty() &&
                        rules.experts() != load::QuantiseRules::Bits::none;
    new_part.form = {.experts = routed,
                     .int4 = routed && rules.experts() == load::QuantiseRules::Bits::int4,
                     .rules = new_part.matrices.empty() ? "" : rules.text()};
    parts.push_back(std::move(new_part));
  }
  require(std::ranges::any_of(parts, [](const Part& part) { return !part.matrices.empty(); }),
          ErrorCode::usage,
          "the rules name no product of '{}': nothing would be quantised; give `dtype` or other "
          "rules",
          state.name);
  return parts;
}

// Runs the calibration, and chooses the factors of the transformer's matrices.
void smooth(const runtime::ModelState& state, const QuantiseRequest& request,
            const RunControl& control, std::vector<Part>& parts) {
  if (request.calibration.empty()) return;
  const auto part =
      std::ranges::find_if(parts, [](const Part& p) { return p.component.name == "transformer"; });
  require(part != parts.end(), ErrorCode::usage,
          "`calibration` smooths the products of a transformer; the rules name none of '{}'",
          state.name);
  runtime::ModelState recorder;
  RunOptions options = state.options;
  options.keep_parts = false;
  runtime::open_model(state.name, options, recorder);
  recorder.inputs = std::make_shared<nn::InputRecords>();
  for (GenerateRequest run : request.calibration) {
    run.decode = false;
    (void)generate(recorder, run, control);
  }
  for (const MatrixForm& matrix : part->matrices) {
    base::check_stop();
    const auto inputs = recorder.inputs->find(matrix.name);
    if (!inputs || !inputs->largest().defined()) continue;
    const Tensor factors = smoothing_factors(part->tensors.get(matrix.name), *inputs, matrix.int4);
    if (factors.defined()) part->factors.emplace(matrix.name, factors);
  }
}

// The notes of a part's check.
std::string check_part(const runtime::ModelState& state, const std::string& name) {
  if (state.language) return state.language->check(state.dtype());
  return name == "transformer" ? state.check_transformer() : state.check_text_encoder(name);
}

void write_part(const Part& part, const fs::path& own, NewWeights& weights) {
  make_folders(own);
  load::QuantisedForm form = part.form;
  form.panels = std::ranges::any_of(part.matrices, &MatrixForm::panels);
  const std::string config = load::quantised_config(part.component, form);
  base::OutputFile description((own / "config.json").string());
  description.write(config.data(), config.size());
  description.commit();
  load::write_safetensors((own / (stem_of(part.component, part.tensors) + ".safetensors")).string(),
                          weights.tensors(),
                          part.component.file.empty() ? part.tensors.files().front().metadata()
                                                      : std::map<std::string, std::string>());
}

// Files take the place of a pipeline's products; other parts are copied from the folder.
void check_weight_files(const runtime::ModelState& state) {
  require(state.files.empty() || state.spec, ErrorCode::usage,
          "a language model is quantised from its folder; leave files in place of its weights out");
  require(!state.language || !load::is_whole_model(state.folder.component("model")),
          ErrorCode::usage, "'{}' is one file; a language model is quantised from its folder",
          state.name);
  require(state.files.vae.empty() && state.files.preview_vae.empty(), ErrorCode::usage,
          "`vae`: a VAE is not quantised; give the file to the run");
}

}  // namespace

QuantiseResult quantise(const runtime::ModelState& state, const QuantiseRequest& request,
                        const RunControl& control) {
  check_request(request);
  check_weight_files(state);
  const base::BindStop stop(control.stop);
  check_files({state.folder.path, {}, {{"-o", request.output, FileKind::model}}});
  const tensor::BindScope bind(state.workers.scope());
  std::vector<Part> parts = parts_of(state, request);
  smooth(state, request, control, parts);
  std::set<fs::path> replaced;
  std::list<NewWeights> weights;  // planned tensors refer to these
  int64_t bytes = 0;
  for (const Part& part : parts) {
    if (const std::string note = check_part(state, part.component.name);
        control.on_note && !note.empty())
      control.on_note(note);
    replaced.insert(part.component.folder);
    bytes += weights.emplace_back(part.tensors, part.matrices, part.factors, control).bytes();
  }
  const fs::path model = state.folder.path;
  const FileList list(model, replaced);
  check_links(state, list, control);
  for (const FileCopy& file : list.files()) bytes += file.bytes;
  check_space(request.output, bytes);

  base::OutputFolder folder(request.output);
  for (const FileCopy& file : list.files()) copy_file(file, folder.beside());
  QuantiseResult result;
  auto written = weights.begin();
  for (const Part& part : parts) {
    const fs::path part_folder = fs::path(part.component.folder).lexically_relative(model);
    write_part(part, (fs::path(folder.beside()) / part_folder).lexically_normal(), *written);
    result.matrices += static_cast<int64_t>(part.matrices.size());
    result.bytes_before += part.tensors.bytes();
    result.bytes += written->bytes();
    std::ranges::move(written->errors(), std::back_inserter(result.each));
    ++written;
  }
  folder.commit();
  return result;
}

}  // namespace tessera::pipeline
