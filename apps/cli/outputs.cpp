#include "outputs.h"

#include <cstdio>

#include "commands.h"

namespace tessera::cli {
namespace {

void check_kind(const Output& o) {
  if (o.path == "-")
    throw Error(
        ErrorCode::usage,
        "output '-': for standard output name /dev/stdout, for a file of that name ./-.png");
  const auto kind = sample_kind(o.path);
  const bool image = kind == FileKind::image, video = kind == FileKind::video;
  if (!image && !video)
    throw Error(ErrorCode::usage, "output '" + o.path + "': expected a name that ends in " +
                                      (o.videos ? ".mp4" : ".png, .webp or .jpg") +
                                      ", or a folder (with '/' at its end)");
  if (o.videos && image)
    throw Error(ErrorCode::usage, "output '" + o.path +
                                      "' is for an image, and this model makes videos: name a .mp4 "
                                      "file, or a folder for the frames (with '/' at its end)");
  if (!o.videos && video)
    throw Error(ErrorCode::usage, "output '" + o.path +
                                      "' is for a video, and this model makes images: name a .png, "
                                      ".webp or .jpg file, or a folder (with '/' at its end)");
}

void print_name(const std::string& path) {
  if (is_device(path)) return;  // standard output may hold the image
  std::printf("%s\n", path.c_str());
  flush_results();
}

}  // namespace

RunOutput check_output(Output& o, size_t count) {
  o.path = o.requested_path.value_or(o.videos ? "tessera.mp4" : "tessera.png");
  const bool folder = is_folder(o.path), special = is_device(o.path);
  const RunOutput result{"-o", o.path, o.videos ? FileKind::video : FileKind::image,
                         static_cast<int64_t>(count)};
  if (special) {
    if (o.videos)
      throw Error(ErrorCode::usage, "output '" + o.path +
                                        "' takes one image, and this model makes videos: name a "
                                        ".mp4 file or a folder");
    if (count > 1)
      throw Error(ErrorCode::usage, "output '" + o.path + "' takes one image, not " +
                                        std::to_string(count) + "; name a folder");
  } else if (!folder) {
    check_kind(o);
  }
  if (!o.rate) return result;
  if (*o.rate < 0.1 || *o.rate > 240 || !(*o.rate == *o.rate))
    throw Error(ErrorCode::usage, "--fps: expected 0.1 to 240 frames a second");
  if (folder || special || !o.videos)
    throw Error(ErrorCode::usage,
                "--fps: only a video in a .mp4 file has a frame rate; '" + o.path + "' is none");
  return result;
}

void check_preview(const std::string& path, bool videos) {
  if (path.empty()) return;
  if (is_device(path))
    throw Error(ErrorCode::usage,
                "--preview '" + path + "': a preview is replaced step by step; name a file");
  if (sample_kind(path) == (videos ? FileKind::video : FileKind::image)) return;
  throw Error(ErrorCode::usage, "--preview '" + path + "': expected a name that ends in " +
                                    (videos ? ".mp4" : ".png, .webp or .jpg"));
}

TimelineFile::TimelineFile(std::string path, const Processes* processes) : path_(std::move(path)) {
  if (path_.empty()) return;
  if (processes)
    throw Error(ErrorCode::usage,
                "--timeline is of ranks in one process; leave out mpirun, and give --ranks N");
  run_.emplace();
}

void TimelineFile::save() const {
  if (!run_) return;
  const auto form = path_.ends_with(".svg") ? TimelineForm::image : TimelineForm::trace;
  save_text(run_->text(form), path_);
}

std::string PreviewFile::show(const Progress& p, const std::stop_token& stop) {
  const bool done = p.step == 0 || p.step == p.steps;  // pure noise, or the final output
  if (path_.empty() || p.phase != Phase::denoise || done || p.step % every_ != 0) return "";
  try {
    const std::vector<Image> images = p.preview();
    has_preview_ = true;
    save_sample(samples_of(images).at(0), path_, rate_, stop);
    return "";
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
    path_.clear();
    return std::string("no preview: ") + e.what();
  }
}

void save_output(const GenerateResult& result, const GenerateRequest& request,
                 const std::string& model, const Output& o, const std::stop_token& stop) {
  save_samples(samples_of(result, request, model), o.path, {o.rate, o.overwrite, print_name}, stop);
}

}  // namespace tessera::cli
