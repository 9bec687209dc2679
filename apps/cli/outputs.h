#pragma once

#include <functional>
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
  std::optional<double> rate;        // frames a second; not set: the usual ones
  double usual_rate = 8;
  bool videos = false;     // what is made
  bool overwrite = false;  // begin with 0 in a folder that holds images
};

/// Completes the path, and returns the output as check_files takes it. `count` images or videos.
/// Throws Error(usage) for a name of another kind, or a place that takes one image alone.
RunOutput check_output(Output& output, size_t count);

/// Writes all images or videos and prints their names; `text` is what is written into image i. In a
/// folder the numbers go on behind the highest there, or begin again with `overwrite`.
void save_images(const GenerateResult& result, const Output& output,
                 const std::function<std::string(size_t i)>& text, const std::stop_token& stop);

/// Throws Error(usage) for a name that is not one of an image or, with `videos`, of a video ("":
/// none was asked for).
void check_preview(const std::string& path, bool videos);

/// Shows steps of a run in one file, each over the last: the first image or video of a request.
class PreviewFile {
 public:
  /// "": no file. One of `every` steps is shown.
  PreviewFile(std::string path, int every, double rate)
      : path_(std::move(path)), every_(every), rate_(rate) {}
  /// Returns why there is none where there cannot be one; it is not tried again then.
  std::string show(const Progress& progress, const std::stop_token& stop);
  /// Whether a preview is wanted that no step has given yet.
  bool waits() const { return !path_.empty() && !shown_; }

 private:
  std::string path_;
  int every_;
  double rate_;
  bool shown_ = false;
};

}  // namespace tessera::cli
