#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "tessera/engine.h"
#include "tessera/prediction.h"

namespace tessera::cli {

/// Destination of images or videos: a file with a matching extension, or a folder.
struct Output {
  std::optional<std::string> requested_path;  // unset: tessera.png, or tessera.mp4
  std::string path;                           // set by the check
  std::optional<double> rate;                 // frames a second; unset: the model's
  bool videos = false;                        // the results are videos
  bool overwrite = false;                     // number from 0 in a folder with images
};

/// Completes the path and returns the output for check_files. `count` images or videos. Throws
/// Error(usage) for a wrong extension, or for several images in a place for a single image.
RunOutput check_output(Output& output, size_t count);

/// Writes all images or videos of a request and prints their paths.
void save_output(const GenerateResult& result, const GenerateRequest& request,
                 const std::string& model, const Output& output, const std::stop_token& stop);

/// Throws Error(usage) unless the name is for an image or, with `videos`, for a video ("": no
/// preview).
void check_preview(const std::string& path, bool videos);

/// Times the runs of this thread for --timeline.
class TimelineFile {
 public:
  /// "": no file. Throws Error(usage) for ranks that are processes.
  TimelineFile(std::string path, const Processes* processes);
  void save() const;

 private:
  std::string path_;
  std::optional<RunTimeline> run_;
};

/// Writes previews of the first image or video into a file, replacing the last preview.
class PreviewFile {
 public:
  /// "": no file. `every`: number of steps between previews.
  PreviewFile(std::string path, int every, std::optional<double> rate)
      : path_(std::move(path)), every_(every), rate_(rate) {}
  /// Returns the reason if a preview failed, and makes no further attempts.
  std::string show(const Progress& progress, const std::stop_token& stop);
  /// True if a preview is requested but not yet shown.
  bool waits() const { return !path_.empty() && !has_preview_; }

 private:
  std::string path_;
  int every_;
  std::optional<double> rate_;  // frames a second of a video; unset: the model's
  bool has_preview_ = false;
};

}  // namespace tessera::cli
