#include "study/subjects.h"

#include <filesystem>
#include <optional>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/json.h"
#include "evaluation/critic.h"
#include "evaluation/scenes.h"
#include "evaluation/unpaired.h"
#include "load/safetensors.h"
#include "load/tensor_set.h"
#include "load/weight_store.h"
#include "ops/elementwise.h"
#include "runtime/resolve_model.h"

namespace tessera::study {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr size_t kMostCaptions = 100000;

/// A critic, and features of real images.
struct Judge {
  evaluation::Critic critic;
  std::optional<evaluation::Moments> real, real_spatial;
  Tensor real_features;
};

evaluation::Moments moments_in(const load::SafetensorsFile& file, const std::string& prefix,
                               int64_t width) {
  const auto numbers = [&](const std::string& name, const tensor::Shape& shape) {
    const Tensor x = file.get(name);
    require(x.shape() == shape && tensor::is_float(x.dtype()), ErrorCode::model,
            "{}: '{}' is {} {}; expected floats {}", file.path(), name, tensor::name_of(x.dtype()),
            x.shape().str(), shape.str());
    const std::vector<float> values = x.to_floats();
    return std::vector<double>(values.begin(), values.end());
  };
  return {numbers(prefix + "mean", {width}), numbers(prefix + "covariance", {width, width})};
}

void read_reference(const std::string& path, Judge& judge) {
  if (!base::is_there(path)) return;
  const auto& config = judge.critic.config();
  int64_t side = config.input;
  for (size_t i = 0; i < config.widths.size(); ++i) side = (side + 1) / 2;
  const load::SafetensorsFile file(path);
  judge.real = moments_in(file, "", config.hidden);
  judge.real_spatial = moments_in(
      file, "spatial_", side * side * std::min(evaluation::kSpatialChannels, config.widths.back()));
  judge.real_features = ops::cast(file.get("features"), DType::f32);
  require(judge.real_features.rank() == 2 && judge.real_features.size(1) == config.hidden,
          ErrorCode::model, "{}: 'features' is {}; expected [n, {}]", path,
          judge.real_features.shape().str(), config.hidden);
}

std::unique_ptr<Judge> judge_of(const std::string& model) {
  const std::filesystem::path folder =
      std::filesystem::path(runtime::resolve_model(model)) / "critic";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return nullptr;
  const std::string config = (folder / "config.json").string();
  const load::WeightStore store;
  auto judge = std::make_unique<Judge>(
      Judge{evaluation::Critic(evaluation::parse_critic_config(base::read_json(config), config),
                               *store.open(load::open_component(folder.string()))),
            {},
            {},
            {}});
  read_reference((folder / "reference.safetensors").string(), *judge);
  return judge;
}

// Runs the critic on all images, one at a time for constant memory.
std::vector<bool> look(const Judge& judge, const std::vector<Image>& images, int unpaired_from,
                       PlanQuality& quality) {
  std::vector<bool> right;
  std::vector<Tensor> logits, features, spatial;
  for (size_t i = 0; i < images.size(); ++i) {
    const Image& p = images[i];
    Tensor x = Tensor::empty({1, p.height, p.width, 3}, DType::f32);
    for (size_t j = 0; j < p.rgb.size(); ++j) x.data<float>()[j] = float(p.rgb[j]) / 255;
    const evaluation::Sight sight = judge.critic.see(x);
    right.push_back(evaluation::best_class(sight.logits)[0] ==
                    int(i) % int(judge.critic.config().classes));
    logits.push_back(sight.logits);
    features.push_back(sight.features);
    spatial.push_back(sight.spatial);
  }
  if (!judge.real || static_cast<int>(images.size()) < unpaired_from) return right;
  const Tensor image_features = ops::concat_rows(features);
  quality.frechet = evaluation::frechet_distance(evaluation::moments(image_features), *judge.real);
  quality.spatial_frechet = evaluation::frechet_distance(
      evaluation::moments(ops::concat_rows(spatial)), *judge.real_spatial);
  quality.inception_score = evaluation::inception_score(ops::concat_rows(logits));
  const evaluation::Overlap overlap = evaluation::overlap(image_features, judge.real_features);
  quality.precision = overlap.precision;
  quality.recall = overlap.recall;
  return right;
}

class Classes : public Subjects {
 public:
  Classes(const std::string& model, int64_t count) : count_(count), judge_(judge_of(model)) {}
  void ask(int64_t index, GenerateRequest& request) const override {
    request.classes.push_back(std::to_string(index % count_));
  }
  std::vector<bool> judge(const std::vector<Image>& images, int unpaired_from,
                          PlanQuality& quality) const override {
    return judge_ ? look(*judge_, images, unpaired_from, quality) : std::vector<bool>();
  }

 private:
  int64_t count_;
  std::unique_ptr<Judge> judge_;
};

class Captions : public Subjects {
 public:
  explicit Captions(const std::string& path) {
    const base::Json list = base::read_json(path);
    require(list.is_array() && !list.empty() && list.size() <= kMostCaptions, ErrorCode::model,
            "{}: expected a list of 1 to {} captions", path, kMostCaptions);
    for (const base::Json& caption : list) {
      require(caption.is_string(), ErrorCode::model, "{}: a caption that is no text", path);
      captions_.push_back(caption.get<std::string>());
      scenes_.push_back(evaluation::parse_scene(captions_.back(), path));
    }
  }
  void ask(int64_t index, GenerateRequest& request) const override {
    request.prompts.push_back(captions_[static_cast<size_t>(index) % captions_.size()]);
  }
  std::vector<bool> judge(const std::vector<Image>& images, int, PlanQuality&) const override {
    std::vector<bool> right;
    for (size_t i = 0; i < images.size(); ++i) {
      const Image& p = images[i];
      right.push_back(evaluation::shows(evaluation::see_things(p.rgb, p.height, p.width),
                                        scenes_[i % scenes_.size()]));
    }
    return right;
  }

 private:
  std::vector<std::string> captions_;
  std::vector<evaluation::Scene> scenes_;
};

}  // namespace

std::unique_ptr<Subjects> subjects_of(const std::string& model, int64_t classes) {
  if (classes > 0) return std::make_unique<Classes>(model, classes);
  const std::filesystem::path path =
      std::filesystem::path(runtime::resolve_model(model)) / "captions.json";
  require(base::is_there(path.string()), ErrorCode::model,
          "'{}' has no classes to draw from, and no captions.json; 'eval' measures models like "
          "shapes and scenes",
          model);
  return std::make_unique<Captions>(path.string());
}

}  // namespace tessera::study
