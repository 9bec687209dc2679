#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "tessera/engine.h"

namespace tessera::cli {

/// Where images or videos go: a file whose name says its kind, or a folder.
struct Output {
  std::optional<std::string> asked;  // not set: tessera.png, or tessera.mp4
  std::string path;                  // known once it was checked
  std::optional<double> rate;        // frames a second; not set: the model's
  bool videos = false;               // what is made
  bool overwrite = false;            // begin with 0 in a folder that holds images
};

/// Completes the path, and returns the output as check_files takes it. `count` images or videos.
/// Throws Error(usage) for a name of another kind, or a place that takes one image alone.
RunOutput check_output(Output& output, size_t count);

/// Writes all images or videos of a request, and prints their names.
void save_output(const GenerateResult& result, const GenerateRequest& request,
                 const std::string& model, const Output& output, const std::stop_token& stop);

/// Throws Error(usage) for a name that is not one of an image or, with `videos`, of a video ("":
/// none was asked for).
void check_preview(const std::string& path, bool videos);

/// Shows steps of a run in one file, each over the last: the first image or video of a request.
class PreviewFile {
 public:
  /// "": no file. One of `every` steps is shown.
  PreviewFile(std::string path, int every, std::optional<double> rate)
      : path_(std::move(path)), every_(every), rate_(rate) {}
  /// Returns why there is none where there cannot be one; it is not tried again then.
  std::string show(const Progress& progress, const std::stop_token& stop);
  /// Whether a preview is wanted that no step has given yet.
  bool waits() const { return !path_.empty() && !shown_; }

 private:
  std::string path_;
  int every_;
  std::optional<double> rate_;  // of a video; not set: the model's
  bool shown_ = false;
};

}  // namespace tessera::cli
