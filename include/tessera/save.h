#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tessera/image.h"
#include "tessera/report.h"
#include "tessera/request.h"
#include "tessera/run_files.h"

namespace tessera {

/// An image, or a video with its frames, as it goes into a file. Views what it was made of.
struct Sample {
  std::span<const Image> frames;  ///< of an image one
  uint64_t seed = 0;              ///< that drew its noise
  int count = 1, place = 0;       ///< samples that this seed drew, and its place among them
  std::string parameters{};       ///< how it was made, as its file says it; "": nothing is said
  bool is_video() const { return frames.front().video >= 0; }
};

/// The samples of a result in their order, and how each was made in the form that other programs
/// read: the prompt, "Negative prompt: ...", then "Steps: 20, Sampler: ..., Model: `model`".
std::vector<Sample> samples_of(const GenerateResult& result, const GenerateRequest& request,
                               const std::string& model);
/// The samples among images alone, such as Progress::preview() gives.
std::vector<Sample> samples_of(std::span<const Image> images);

/// Writes a sample as the end of the name says: an image, or one frame, as .png, .webp (lossless)
/// or .jpg, a video as .mp4 at `frame_rate` frames a second (not set: the model's); into a device
/// or a pipe as PNG. The file is written beside its target and renamed. Throws Error(usage) where
/// it cannot be written, or for another name; Error(cancelled) after a stop request.
void save_sample(const Sample& sample, const std::string& path,
                 std::optional<double> frame_rate = {}, const std::stop_token& stop = {});

/// How samples are saved.
struct SaveOptions {
  std::optional<double> frame_rate{};  ///< of videos; not set: the model's
  bool overwrite = false;              ///< numbers of a folder begin again with 0
  /// Gets the name of each file when it is written; may be empty.
  std::function<void(const std::string& path)> on_saved{};
};
/// Writes samples into a file, or several into files numbered before the end of the name
/// ("x-0000.png"). Into a folder (`path` ends in '/' or is one) go images as PNG, and of videos
/// their frames, those of several videos in a folder each; the numbers go on behind the highest
/// there, and no two runs take the same. The same errors.
void save_samples(std::span<const Sample> samples, const std::string& path,
                  const SaveOptions& options = {}, const std::stop_token& stop = {});

/// Whether save_samples() takes a path for a folder.
bool is_folder(const std::string& path);
/// Whether it is a device or a pipe, such as /dev/stdout, into which an image goes as PNG.
bool is_device(const std::string& path);
/// The image or video that save_sample() writes for the end of a name; none for others.
std::optional<FileKind> sample_kind(const std::string& path);

/// The bytes of a PNG file. Throws Error(cancelled) after a stop request.
std::string encode_png(const Image& image, const std::stop_token& stop = {});

/// Writes an image as PNG with parameters as text chunks: a temporary file, then a rename. Throws
/// Error(usage) on failure, Error(cancelled) after a stop request, as the functions below do.
void save_png(const Image& image, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& text = {},
              const std::stop_token& stop = {});
/// Writes an image as lossless WebP, with parameters in XMP and the Exif user comment.
void save_webp(const Image& image, const std::string& path,
               const std::vector<std::pair<std::string, std::string>>& text = {},
               const std::stop_token& stop = {});
/// Writes an image as JPEG of quality 95, with "parameters" in the Exif user comment.
void save_jpeg(const Image& image, const std::string& path,
               const std::vector<std::pair<std::string, std::string>>& text = {},
               const std::stop_token& stop = {});
/// Writes frames of one size as an MP4 video of `rate` frames a second, with the parameters as
/// comment.
void save_mp4(std::span<const Image> frames, double rate, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& text = {},
              const std::stop_token& stop = {});
/// Writes text the same way.
void save_text(const std::string& text, const std::string& path);

}  // namespace tessera
