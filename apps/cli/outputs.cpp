#include "outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
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

// False: it was there.
bool make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error)
    throw Error(ErrorCode::usage, "cannot make the folder '" + path + "': " + error.message());
  return made;
}

/// Gives the images and videos of a run their names. In a folder each takes its number by a new
/// empty file or folder, so that of two runs there none has the other's.
class Names {
 public:
  Names(const GenerateResult& result, const Output& output) : result_(result), output_(output) {
    if (!is_folder(output.path)) return;
    folder_ = true;
    make_folder(output.path);
    if (!output.overwrite)
      next_ = next_number(output.path, output.videos ? FileKind::video : FileKind::image);
  }
  ~Names() { give_back(); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  std::string file(size_t index, size_t count) {
    if (!folder_) return count == 1 ? output_.path : numbered_name(output_.path, index);
    give_back();
    for (;;) {
      const std::string name = numbered_name(output_.path, next_++);
      const int file = output_.overwrite
                           ? -1
                           : open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file >= 0) taken_ = name;
      if (file >= 0) close(file);
      if (file >= 0 || output_.overwrite || errno != EEXIST) return name;
    }
  }
  // Frames stand in the folder itself, or in one for each of several videos.
  std::string frame(size_t index) {
    const Image& image = result_.images[index];
    if (image.video < 0) return file(index, result_.images.size());
    if (result_.images.back().video == 0)
      place_ = output_.path;
    else if (image.frame == 0)
      place_ = new_folder();
    return numbered_name(place_, static_cast<size_t>(image.frame));
  }

 private:
  std::string new_folder() {
    for (;;) {
      char name[32];
      std::snprintf(name, sizeof name, "video-%04zu/", next_++);
      const std::string place = (fs::path(output_.path) / name).string();
      if (make_folder(place) || output_.overwrite) return place;
    }
  }
  // The number of an image that could not be written.
  void give_back() {
    std::error_code none;
    if (!taken_.empty() && fs::file_size(taken_, none) == 0 && !none) fs::remove(taken_, none);
    taken_.clear();
  }

  const GenerateResult& result_;
  const Output& output_;
  bool folder_ = false;
  size_t next_ = 0;
  std::string taken_, place_;
};

using Texts = std::vector<std::pair<std::string, std::string>>;

// A preview says as little as that.
Texts mark() { return {{"Software", std::string("Tessera ") + kVersion}}; }

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
  Names names(result, o);
  for (size_t begin = 0, end = 0, video = 0; begin < all.size(); begin = end, ++video) {
    while (end < all.size() && all[end].video == all[begin].video) ++end;
    const std::string path = names.file(video, videos);
    save_mp4(std::span(all).subspan(begin, end - begin), o.rate.value_or(o.usual_rate), path,
             texts_of(text(begin)), stop);
    print_name(path);
  }
}

}  // namespace

RunOutput check_output(Output& o, size_t count) {
  o.path = o.asked.value_or(o.videos ? "tessera.mp4" : "tessera.png");
  const bool folder = is_folder(o.path), special = is_special(o.path);
  const RunOutput planned{"-o", o.path, o.videos ? FileKind::video : FileKind::image,
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
  if (!o.rate) return planned;
  if (*o.rate < 0.1 || *o.rate > 240 || !(*o.rate == *o.rate))
    throw Error(ErrorCode::usage, "--fps: expected 0.1 to 240 frames a second");
  if (folder || special || !o.videos)
    throw Error(ErrorCode::usage,
                "--fps: only a video in a .mp4 file has a frame rate; '" + o.path + "' is none");
  return planned;
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
      save_mp4({made.begin(), other}, rate_, path_, mark(), stop);
    else
      save_image(made[0], path_, mark(), stop);
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
  Names names(result, o);
  for (size_t i = 0; i < result.images.size(); ++i) {
    const std::string path = names.frame(i);
    save_image(result.images[i], path, texts_of(text(i)), stop);
    print_name(path);
  }
}

}  // namespace tessera::cli
