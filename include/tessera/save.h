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

/// An image, or a video with its frames. A view of the images of a result.
struct Sample {
  std::span<const Image> frames;  ///< an image has one frame
  uint64_t seed = 0;              ///< seed of its noise
  int count = 1, place = 0;       ///< number of samples of this seed, and the place among them
  std::string parameters{};       ///< generation parameters for the file; "": none
  bool is_video() const { return frames.front().video >= 0; }
};

/// The samples of a result in order. Parameters have the common text form: the prompt,
/// "Negative prompt: ...", then "Steps: 20, Sampler: ..., Model: `model`".
std::vector<Sample> samples_of(const GenerateResult& result, const GenerateRequest& request,
                               const std::string& model);
/// The samples of images without a result, such as those of Progress::preview().
std::vector<Sample> samples_of(std::span<const Image> images);

/// Writes a sample in the format of the file name: an image or a frame as .png, .webp (lossless) or
/// .jpg, a video as .mp4 with `frame_rate` frames a second (not set: the model's rate). Devices and
/// pipes get PNG. Writes a temporary file, then renames it. Throws Error(usage) for other names and
/// on failure, Error(cancelled) after a stop request.
void save_sample(const Sample& sample, const std::string& path,
                 std::optional<double> frame_rate = {}, const std::stop_token& stop = {});

/// Options of save_samples().
struct SaveOptions {
  std::optional<double> frame_rate{};  ///< frames a second of videos; not set: the model's rate
  bool overwrite = false;              ///< numbers in a folder begin at 0
  /// Called with the name of each written file; may be empty.
  std::function<void(const std::string& path)> on_saved{};
};
/// Writes a sample into a file, several samples into numbered files ("x-0000.png"). In a folder
/// (`path` ends in '/' or exists as a folder) images become numbered PNG files, and frames of
/// videos likewise, with a folder for each of several videos. Numbers continue after the highest
/// existing number, and parallel runs never share a number. Errors as for save_sample().
void save_samples(std::span<const Sample> samples, const std::string& path,
                  const SaveOptions& options = {}, const std::stop_token& stop = {});

/// True for a path ending in '/' and for existing folders.
bool is_folder(const std::string& path);
/// True for devices and pipes, such as /dev/stdout.
bool is_device(const std::string& path);
/// The kind of file for a name, image or video; none for unknown endings.
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
