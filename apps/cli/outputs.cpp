#include "outputs.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <span>

#include "commands.h"
#include "parameters.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// A device or a pipe, such as /dev/stdout.
bool is_special(const std::string& output) {
  std::error_code ignored;
  const auto status = fs::status(output, ignored);
  return output.starts_with("/dev/") || fs::is_fifo(status);
}

bool is_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || fs::is_directory(output, ignored);
}

// ".png", in small letters.
std::string kind_of(const std::string& output) {
  std::string end = fs::path(output).extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end;
}

void check_folder(const std::string& output) {
  std::error_code ignored;
  fs::path there = fs::absolute(output, ignored);
  while (!fs::exists(there, ignored) && there.has_parent_path()) there = there.parent_path();
  check_writable((there / "tessera").string());
}

bool is_image(const std::string& kind) {
  return kind == ".png" || kind == ".webp" || kind == ".jpg" || kind == ".jpeg";
}

void check_kind(const Output& o) {
  if (o.path == "-")
    throw Error(
        ErrorCode::usage,
        "output '-': for standard output name /dev/stdout, for a file of that name ./-.png");
  const std::string kind = kind_of(o.path);
  const bool image = is_image(kind), video = kind == ".mp4";
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

std::string numbered(const std::string& output, size_t index, size_t count) {
  const fs::path path(output);
  char tail[32];
  if (is_folder(output)) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error)
      throw Error(ErrorCode::usage, "cannot make the folder '" + output + "': " + error.message());
    std::snprintf(tail, sizeof tail, "%04zu.png", index);
    return (path / tail).string();
  }
  if (count == 1) return output;
  std::snprintf(tail, sizeof tail, "-%04zu", index);
  return (path.parent_path() / (path.stem().string() + tail + path.extension().string())).string();
}

// Frames stand in one folder, or in a folder a video.
std::string frame_path(const GenerateResult& result, const std::string& output, size_t index) {
  const Image& image = result.images[index];
  if (image.video < 0) return numbered(output, index, result.images.size());
  char folder[32] = "";
  if (result.images.back().video > 0)
    std::snprintf(folder, sizeof folder, "video-%04d/", image.video);
  std::string place = (fs::path(output) / folder).string();
  if (!place.ends_with('/')) place += '/';
  return numbered(place, static_cast<size_t>(image.frame), 2);
}

using Texts = std::vector<std::pair<std::string, std::string>>;

void print_name(const std::string& path) {
  if (is_special(path)) return;  // the image itself may be on standard output
  std::printf("%s\n", path.c_str());
  flush_results();
}

void save_image(const Image& image, const std::string& path, const Texts& texts,
                const std::stop_token& stop) {
  const std::string kind = kind_of(path);
  const auto save = kind == ".webp" ? save_webp : kind.starts_with(".j") ? save_jpeg : save_png;
  save(image, path, texts, stop);
}

void save_videos(const GenerateResult& result, const Output& o,
                 const std::function<std::string(size_t i)>& text, const std::stop_token& stop) {
  const std::vector<Image>& all = result.images;
  const size_t videos = all.empty() ? 0 : static_cast<size_t>(all.back().video) + 1;
  for (size_t begin = 0, end = 0, video = 0; begin < all.size(); begin = end, ++video) {
    while (end < all.size() && all[end].video == all[begin].video) ++end;
    const std::string path = numbered(o.path, video, videos);
    save_mp4(std::span(all).subspan(begin, end - begin), o.rate.value_or(o.usual_rate), path,
             texts_of(text(begin)), stop);
    print_name(path);
  }
}

}  // namespace

std::string check_output(Output& o, size_t count) {
  o.path = o.asked.value_or(o.videos ? "tessera.mp4" : "tessera.png");
  const bool folder = is_folder(o.path), special = is_special(o.path);
  if (folder) {
    check_folder(o.path);
  } else if (special) {
    if (o.videos)
      throw Error(ErrorCode::usage, "output '" + o.path +
                                        "' takes one image, and this model makes videos: name a "
                                        ".mp4 file or a folder");
    if (count > 1)
      throw Error(ErrorCode::usage, "output '" + o.path + "' takes one image, not " +
                                        std::to_string(count) + "; name a folder");
  } else {
    check_kind(o);
  }
  if (!folder) check_writable(o.path);
  const std::string file = folder ? "" : o.path;
  if (!o.rate) return file;
  if (*o.rate < 0.1 || *o.rate > 240 || !(*o.rate == *o.rate))
    throw Error(ErrorCode::usage, "--fps: expected 0.1 to 240 frames a second");
  if (folder || special || !o.videos)
    throw Error(ErrorCode::usage,
                "--fps: only a video in a .mp4 file has a frame rate; '" + o.path + "' is none");
  return file;
}

void check_preview(const std::string& path, bool videos) {
  if (path.empty()) return;
  if (is_special(path))
    throw Error(ErrorCode::usage,
                "--preview '" + path + "': a preview is replaced step by step; name a file");
  const std::string kind = kind_of(path);
  if (videos ? kind == ".mp4" : is_image(kind)) return;
  throw Error(ErrorCode::usage, "--preview '" + path + "': expected a name that ends in " +
                                    (videos ? ".mp4" : ".png, .webp or .jpg"));
}

std::string PreviewFile::show(const Progress& p, const std::stop_token& stop) {
  const bool done = p.step == 0 || p.step == p.steps;  // pure noise, or what the output shows
  if (path_.empty() || p.phase != Phase::denoise || done || p.step % every_ != 0) return "";
  try {
    std::vector<Image> made = p.preview();
    shown_ = true;
    const auto other = std::find_if(made.begin(), made.end(),
                                    [&](const Image& one) { return one.video != made[0].video; });
    if (made.at(0).video >= 0)
      save_mp4({made.begin(), other}, rate_, path_, {}, stop);
    else
      save_image(made[0], path_, {}, stop);
    return "";
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
    path_.clear();
    return std::string("no preview: ") + e.what();
  }
}

void save_images(const GenerateResult& result, const Output& o,
                 const std::function<std::string(size_t i)>& text, const std::stop_token& stop) {
  if (o.videos && !is_folder(o.path)) return save_videos(result, o, text, stop);
  for (size_t i = 0; i < result.images.size(); ++i) {
    const std::string path = frame_path(result, o.path, i);
    save_image(result.images[i], path, texts_of(text(i)), stop);
    print_name(path);
  }
}

}  // namespace tessera::cli
