#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera::study {

/// The subjects of a model's evaluation, and the judge of its images.
class Subjects {
 public:
  virtual ~Subjects() = default;
  /// Adds the class or prompt of image `index` to a request; subjects come in turn.
  virtual void ask(int64_t index, GenerateRequest& request) const = 0;
  /// Flags of images 0, 1, ... with the requested content; none: unknown. Sets the results for all
  /// images together; `unpaired_from`: as in EvalRequest.
  virtual std::vector<bool> judge(const std::vector<Image>& images, int unpaired_from,
                                  PlanQuality& quality) const = 0;
};

/// All classes of a class-conditional model, judged by the critic in its folder, if any; otherwise
/// the captions of scenes in captions.json, judged by the things in the images (evaluation::shows).
/// Throws Error(model) if the folder has neither.
std::unique_ptr<Subjects> subjects_of(const std::string& model, int64_t classes);

}  // namespace tessera::study
