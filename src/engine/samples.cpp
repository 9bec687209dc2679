#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>

#include "base/fail.h"
#include "tessera/save.h"
#include "tessera/version.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::pair<std::string, std::string>>;

// Quotes a value with a separator of the parameter line.
std::string in_quotes(const std::string& value) {
  if (value.find_first_of(",:\n\"") == std::string::npos) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

// "style:0.8, turbo:1"
std::string adapters_of(const GenerateRequest& request) {
  std::string names;
  for (const Lora& lora : request.loras)
    names += fmt::format("{}{}:{:g}", names.empty() ? "" : ", ",
                         fs::path(lora.file).stem().string(), lora.strength);
  return names;
}

std::string parameters_of(const GenerateResult& result, const GenerateRequest& request,
                          const Sample& sample, const std::string& model) {
  const Image& image = sample.frames.front();
  std::string text = image.label + "\n";
  if (request.negative_prompt) text += "Negative prompt: " + *request.negative_prompt + "\n";
  text += fmt::format("Steps: {}, Sampler: {}, CFG scale: {:g}, Seed: {}, Size: {}x{}, Model: {}",
                      result.steps, result.sampler, double{result.guidance}, sample.seed,
                      image.width, image.height, in_quotes(model));
  if (sample.count > 1)
    text += fmt::format(", Batch size: {}, Batch pos: {}", sample.count, sample.place);
  if (!request.loras.empty()) text += ", LoRA: " + in_quotes(adapters_of(request));
  return text + ", Version: Tessera " + kVersion;
}

// Every file names its program, even without parameters.
Texts texts_of(const Sample& sample) {
  Texts texts{{"Software", std::string("Tessera ") + kVersion}};
  if (!sample.parameters.empty()) texts.emplace_back("parameters", sample.parameters);
  return texts;
}

// ".png" in lower case.
std::string end_of(const std::string& path) {
  std::string end = fs::path(path).extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end;
}

// Returns false if the folder exists already.
bool make_folder(const std::string& path) {
  std::error_code error;
  const bool is_new = fs::create_directories(path, error);
  require(!error, ErrorCode::usage, "cannot make the folder '{}': {}", path, error.message());
  return is_new;
}

/// The names of samples. In a folder a new empty file or folder reserves each number, so that
/// parallel runs never share a number.
class Names {
 public:
  Names(std::span<const Sample> samples, const std::string& path, bool overwrite)
      : path_(path), overwrite_(overwrite), count_(samples.size()), folder_(is_folder(path)) {
    if (!folder_ || samples.empty()) return;
    make_folder(path);
    if (!overwrite)
      next_ = next_number(path, samples[0].is_video() ? FileKind::video : FileKind::image);
  }
  ~Names() { give_back(); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  bool folder() const { return folder_; }
  std::string file(size_t index) {
    if (!folder_) return count_ == 1 ? path_ : numbered_name(path_, index);
    give_back();
    for (;;) {
      const std::string name = numbered_name(path_, next_++);
      if (overwrite_) return name;
      const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file < 0 && errno == EEXIST) continue;
      if (file >= 0) {
        reserved_ = name;
        close(file);
      }
      return name;
    }
  }
  /// The folder for the frames of a video; several videos have subfolders.
  std::string frames() {
    if (count_ == 1) return path_;
    for (;;) {
      const std::string place = (fs::path(path_) / fmt::format("video-{:04}/", next_++)).string();
      if (make_folder(place) || overwrite_) return place;
    }
  }

 private:
  // Frees the number of an image after a failed write.
  void give_back() {
    std::error_code none;
    if (!reserved_.empty() && fs::file_size(reserved_, none) == 0 && !none)
      fs::remove(reserved_, none);
    reserved_.clear();
  }

  const std::string path_;
  const bool overwrite_;
  const size_t count_;
  const bool folder_;
  size_t next_ = 0;
  std::string reserved_;
};

}  // namespace

std::vector<Sample> samples_of(std::span<const Image> images) {
  std::vector<Sample> samples;
  for (size_t begin = 0, end = 0; begin < images.size(); begin = end) {
    ++end;
    while (end < images.size() && images[begin].video >= 0 &&
           images[end].video == images[begin].video)
      ++end;
    samples.push_back({images.subspan(begin, end - begin)});
  }
  return samples;
}

std::vector<Sample> samples_of(const GenerateResult& result, const GenerateRequest& request,
                               const std::string& model) {
  std::vector<Sample> samples = samples_of(result.images);
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool own = i < request.seeds.size();
    samples[i].seed = own ? request.seeds[i] : request.seed;
    if (!own) {
      samples[i].count = static_cast<int>(samples.size());
      samples[i].place = static_cast<int>(i);
    }
    samples[i].parameters = parameters_of(result, request, samples[i], model);
  }
  return samples;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return path.ends_with('/') || fs::is_directory(path, ignored);
}

bool is_device(const std::string& path) {
  std::error_code ignored;
  return path.starts_with("/dev/") || fs::is_fifo(fs::status(path, ignored));
}

std::optional<FileKind> sample_kind(const std::string& path) {
  const std::string end = end_of(path);
  if (end == ".mp4") return FileKind::video;
  if (end == ".png" || end == ".webp" || end == ".jpg" || end == ".jpeg") return FileKind::image;
  return std::nullopt;
}

void save_sample(const Sample& sample, const std::string& path, std::optional<double> frame_rate,
                 const std::stop_token& stop) {
  const auto kind = sample_kind(path);
  if (sample.is_video() && kind == FileKind::video)
    return save_mp4(sample.frames, frame_rate.value_or(sample.frames.front().frame_rate), path,
                    texts_of(sample), stop);
  const bool image = kind == FileKind::image || is_device(path);
  require(image && sample.frames.size() == 1, ErrorCode::usage,
          "'{}' is no name for {}: expected an end in {}", path,
          sample.is_video() ? "a video" : "an image",
          sample.is_video() ? ".mp4" : ".png, .webp or .jpg");
  const std::string end = end_of(path);
  const auto save = end == ".webp" ? save_webp : end.starts_with(".j") ? save_jpeg : save_png;
  save(sample.frames.front(), path, texts_of(sample), stop);
}

void save_samples(std::span<const Sample> samples, const std::string& path,
                  const SaveOptions& options, const std::stop_token& stop) {
  Names names(samples, path, options.overwrite);
  const auto save = [&](const Sample& sample, const std::string& name) {
    save_sample(sample, name, options.frame_rate, stop);
    if (options.on_saved) options.on_saved(name);
  };
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!names.folder() || !samples[i].is_video()) {
      save(samples[i], names.file(i));
      continue;
    }
    const std::string place = names.frames();
    for (size_t frame = 0; frame < samples[i].frames.size(); ++frame) {
      Sample frame_sample = samples[i];
      frame_sample.frames = samples[i].frames.subspan(frame, 1);
      save(frame_sample, numbered_name(place, frame));
    }
  }
}

}  // namespace tessera
