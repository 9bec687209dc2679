#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera::study {

/// What a model is measured on, and what looks at its images.
class Subjects {
 public:
  virtual ~Subjects() = default;
  /// Adds the class or prompt of image `index` to a request; they come in turn.
  virtual void ask(int64_t index, GenerateRequest& request) const = 0;
  /// Which of images 0, 1, ... show what was asked for; none: nobody can tell. Sets what can be
  /// said of all at once; `unpaired_from`: as in EvalRequest.
  virtual std::vector<bool> judge(const std::vector<Image>& images, int unpaired_from,
                                  PlanQuality& quality) const = 0;
};

/// All classes of a model that has any, judged by the critic in its folder if there is one;
/// otherwise the captions of scenes in its captions.json, judged by what the images show
/// (evaluation::shows). Throws Error(model) where there is neither.
std::unique_ptr<Subjects> subjects_of(const std::string& model, int64_t classes);

}  // namespace tessera::study
