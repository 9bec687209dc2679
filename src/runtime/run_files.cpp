#include "tessera/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/leftovers.h"
#include "base/output_file.h"
#include "load/hub_cache.h"
#include "media/video.h"
#include "runtime/former_output.h"
#include "runtime/resolve_model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Identity = std::pair<uint64_t, uint64_t>;  // device and inode

std::optional<Identity> identity_of(const struct stat& info) {
  return Identity{info.st_dev, info.st_ino};
}
std::optional<Identity> identity_of(const fs::path& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? identity_of(info) : std::nullopt;
}

/// A path, and the file behind its links.
struct Place {
  std::string path;
  fs::path real;  ///< resolved through all links; a dangling link stays itself
  std::optional<Identity> identity{};
  bool exists = false, folder = false, regular = false, empty = false;

  explicit Place(const std::string& name) : path(name) {
    std::error_code error;
    fs::path whole = fs::absolute(name, error);
    if (!whole.has_filename()) whole = whole.parent_path();
    real = fs::weakly_canonical(whole, error);
    if (error || real.empty()) real = whole.lexically_normal();
    struct stat info {};
    exists = stat(name.c_str(), &info) == 0;
    folder = exists ? S_ISDIR(info.st_mode) : name.ends_with('/');
    regular = exists && S_ISREG(info.st_mode);
    empty = regular && info.st_size == 0;
    // /dev/null and terminals accept any output.
    if (exists && !S_ISCHR(info.st_mode)) identity = identity_of(info);
  }
  bool device() const { return exists && !identity; }
};

bool same(const Place& a, const Place& b) {
  if (a.device() || b.device()) return false;
  return (a.identity && a.identity == b.identity) || a.real == b.real;
}

// Works for paths without a file, too.
bool lies_in(const Place& place, const std::set<Identity>& folders) {
  for (fs::path at = place.real;; at = at.parent_path()) {
    const auto identity = identity_of(at);
    if (identity && folders.contains(*identity)) return true;
    if (!at.has_relative_path()) return false;
  }
}

// "0007" of "c-0007.png"; at least four digits.
std::optional<int64_t> number_between(std::string_view name, std::string_view before,
                                      std::string_view behind) {
  if (name.size() < before.size() + behind.size() + 4 || !name.starts_with(before) ||
      !name.ends_with(behind))
    return std::nullopt;
  const std::string_view digits =
      name.substr(before.size(), name.size() - before.size() - behind.size());
  if (digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos)
    return std::nullopt;
  return std::stoll(std::string(digits));
}

struct Pattern {
  fs::path folder;
  std::string before, behind;
  std::optional<int64_t> number_of(const fs::path& name) const {
    return number_between(name.filename().string(), before, behind);
  }
};

Pattern pattern_of(const Place& output, FileKind kind) {
  if (output.folder) {
    const bool video = kind == FileKind::video;
    return {output.real, video ? "video-" : "", video ? "" : ".png"};
  }
  const fs::path path(output.path);
  return {output.real.parent_path(), path.stem().string() + "-", path.extension().string()};
}

void each_number(const Pattern& pattern,
                 const std::function<void(const fs::path&, int64_t)>& take) {
  std::error_code error;
  for (fs::directory_iterator at(pattern.folder, error), end; !error && at != end;
       at.increment(error))
    if (const auto number = pattern.number_of(at->path())) take(at->path(), *number);
}

/// The folder of a model, and the targets of its links.
class ModelFiles {
 public:
  explicit ModelFiles(const std::string& model) {
    if (model.empty()) return;
    try {
      root_ = runtime::resolve_model(model);
    } catch (const Error&) {  // Model::open reports the error
      return;
    }
    if (const auto identity = identity_of(root_)) folders_.insert(*identity);
    take(root_, true);
  }
  const fs::path& root() const { return root_; }
  bool holds(const Place& place) const {
    return (place.identity && files_.contains(*place.identity)) || lies_in(place, folders_);
  }

 private:
  // Takes the files of a model's folder and of its components.
  void take(const fs::path& folder, bool components) {
    std::error_code error, ignored;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      const auto identity = identity_of(at->path());
      if (!identity) continue;
      if (!at->is_directory(ignored)) {
        files_.insert(*identity);
      } else if (components) {
        // A link to a folder around the model would include everything.
        const bool link = at->is_symlink(ignored);
        if (link && lies_in(Place(root_.string()), {*identity})) continue;
        if (link) folders_.insert(*identity);
        take(at->path(), false);
      }
    }
  }
  fs::path root_;
  std::set<Identity> folders_, files_;
};

/// The rules of check_files(), each in a function.
class Check {
 public:
  explicit Check(const RunFiles& files) : files_(files), model_(files.model) {
    for (const RunInput& input : files.inputs)
      if (!input.path.empty() && input.path != "-")
        inputs_.push_back({input.option, Place(input.path)});
    for (const RunOutput& output : files.outputs)
      if (!output.path.empty()) outputs_.push_back({&output, Place(output.path)});
    const std::string cache = load::hub_cache();
    if (cache.empty()) return;
    if (const auto identity = identity_of(cache)) cache_.insert(*identity);
  }

  void run() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      check_place(outputs_[i]);
      check_inputs(outputs_[i]);
      check_streams(outputs_[i]);
      for (size_t k = 0; k < outputs_.size(); ++k)
        if (k != i) check_pair(outputs_[i], outputs_[k], k < i);
    }
    sweep();
    for (const Output& output : outputs_) check_writing(output);
    if (files_.overwrite) return;
    for (const Output& output : outputs_) check_existing(output);
  }

 private:
  struct Input {
    std::string option;
    Place place;
  };
  struct Output {
    const RunOutput* request;
    Place place;
    std::string name() const { return fmt::format("{} '{}'", request->option, request->path); }
    bool takes_numbers() const {
      return request->kind <= FileKind::video && (place.folder || request->count != 1);
    }
  };

  void check_place(const Output& output) const {
    require(!model_.holds(output.place), ErrorCode::usage,
            "{} lies in the model's own folder '{}'; name one beside it", output.name(),
            model_.root().string());
    require(!lies_in(output.place, cache_), ErrorCode::usage,
            "{} lies in the hub's cache '{}'; name a place outside", output.name(),
            load::hub_cache());
  }

  void check_inputs(const Output& output) const {
    for (const Input& input : inputs_) {
      require(!same(output.place, input.place), ErrorCode::usage,
              "{} is the file of {}, which this run reads: name another", output.name(),
              input.option);
      // New files in a folder continue its numbers, unless they replace old files.
      const bool numbered = output.place.folder ? files_.overwrite : output.request->count != 1;
      require(
          !numbered || !gives(output, input.place), ErrorCode::usage,
          "{} gives its files names like '{}', which is {}, and this run reads it: name another",
          output.name(), input.place.path, input.option);
      require(output.request->kind != FileKind::store || !lies_below(input.place, output.place),
              ErrorCode::usage, "{} lies in the folder of {}: keep it elsewhere", input.option,
              output.name());
    }
  }

  // Refuses a file opened by the shell for a standard stream.
  void check_streams(const Output& output) const {
    if (output.request->path.starts_with("/dev/") || output.request->path.starts_with("/proc/"))
      return;
    for (const auto& [stream, name] :
         {std::pair{STDIN_FILENO, "input"}, {STDOUT_FILENO, "output"}, {STDERR_FILENO, "error"}}) {
      struct stat info {};
      const bool is_same_file = fstat(stream, &info) == 0 && S_ISREG(info.st_mode) &&
                                output.place.identity == identity_of(info);
      require(!is_same_file, ErrorCode::usage, "{} is the file of standard {}: name another",
              output.name(), name);
    }
  }

  void check_pair(const Output& output, const Output& other, bool earlier) const {
    require(!earlier || !same(output.place, other.place), ErrorCode::usage,
            "'{}' would be written twice, as {} and {}, and only the later would stay: name two "
            "files",
            output.request->path, other.request->option, output.request->option);
    require(!output.takes_numbers() || !gives(output, other.place), ErrorCode::usage,
            "{} is a name that {} gives its files: name another", other.name(), output.name());
    require(output.place.folder || !lies_below(other.place, output.place), ErrorCode::usage,
            "{} is to be a file, and {} lies in a folder of that name: name another", output.name(),
            other.name());
  }

  static bool lies_below(const Place& place, const Place& folder) {
    const auto [end, rest] =
        std::mismatch(folder.real.begin(), folder.real.end(), place.real.begin(), place.real.end());
    return end == folder.real.end() && rest != place.real.end();
  }

  // Whether a numbered output may take this place.
  static bool gives(const Output& output, const Place& place) {
    const Pattern pattern = pattern_of(output.place, output.request->kind);
    if (output.place.folder) {
      const Pattern frames{output.place.real, "", ".png"}, videos{output.place.real, "video-", ""};
      const fs::path parent = place.real.parent_path();
      return (parent == output.place.real &&
              (frames.number_of(place.real) || videos.number_of(place.real))) ||
             (parent.parent_path() == output.place.real && videos.number_of(parent));
    }
    const auto number = pattern.number_of(place.real);
    return place.real.parent_path() == pattern.folder && number &&
           (output.request->count == 0 || *number < output.request->count);
  }

  void sweep() const {
    std::set<std::string> folders;
    for (const Output& output : outputs_)
      folders.insert(
          (output.place.folder ? output.place.real : output.place.real.parent_path()).string());
    for (const std::string& folder : folders) base::sweep_leftovers(folder);
  }

  void check_writing(const Output& output) const {
    if (output.request->kind >= FileKind::model) return;  // the writers report errors themselves
    if (!output.place.folder || output.request->kind > FileKind::video) {
      base::check_writable(output.request->path);
      if (output.request->kind == FileKind::video) media::check_mp4();
      return;
    }
    fs::path parent = output.place.real;
    std::error_code ignored;
    while (!fs::exists(parent, ignored) && parent.has_relative_path())
      parent = parent.parent_path();
    base::check_writable((parent / "tessera").string());
  }

  void check_existing(const Output& output) const {
    const FileKind kind = output.request->kind;
    if (kind >= FileKind::model) return;
    const int64_t count = output.request->count;
    if (output.takes_numbers()) {
      if (output.place.folder ? kind == FileKind::video && count == 1 : count > 1)
        each_number(output.place.folder ? Pattern{output.place.real, "", ".png"}
                                        : pattern_of(output.place, kind),
                    [&](const fs::path& name, int64_t number) {
                      if (output.place.folder)
                        fail(ErrorCode::usage,
                             "{} holds frames already, such as {}: name another folder, or give "
                             "`overwrite`",
                             output.name(), name.filename().string());
                      if (number < count) check_former(output, Place(name.string()));
                    });
      return;
    }
    check_former(output, output.place);
  }

  static void check_former(const Output& output, const Place& place) {
    if (!place.regular || place.empty) return;
    const char* const kinds[] = {
        "image", "video", "report", "latents", "trace", "result of forward", "list of plans"};
    const auto kind = static_cast<size_t>(output.request->kind);
    if (output.request->kind == FileKind::chat)
      fail(ErrorCode::usage, "'{}' exists: name another file, or remove it", place.path);
    require(runtime::is_former_output(place.path, output.request->kind), ErrorCode::usage,
            "{}: '{}' exists, and is no {} that Tessera wrote: name another file, or give "
            "`overwrite` to replace it",
            output.request->option, place.path, kinds[kind]);
  }

  const RunFiles& files_;
  ModelFiles model_;
  std::set<Identity> cache_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace

void check_files(const RunFiles& files) {
  const bool writes = std::ranges::any_of(
      files.outputs, [](const RunOutput& output) { return !output.path.empty(); });
  if (!writes) return;
  RunFiles all_files = files;
  all_files.inputs.push_back({"`transformer`", files.weights.transformer});
  all_files.inputs.push_back({"`vae`", files.weights.vae});
  all_files.inputs.push_back({"`preview_vae`", files.weights.preview_vae});
  for (const std::string& text : files.weights.text_encoders)
    all_files.inputs.push_back(
        {"`text_encoder`", text.substr(fs::exists(text) ? 0 : text.find('=') + 1)});
  Check(all_files).run();
}

std::string numbered_name(const std::string& output, size_t number) {
  const fs::path path(output);
  const std::string digits = fmt::format("{:04}", number);
  if (Place(output).folder) return (path / (digits + ".png")).string();
  return (path.parent_path() / (path.stem().string() + "-" + digits + path.extension().string()))
      .string();
}

size_t next_number(const std::string& folder, FileKind kind) {
  int64_t next = 0;
  Place place(folder);
  place.folder = true;
  each_number(pattern_of(place, kind),
              [&](const fs::path&, int64_t number) { next = std::max(next, number + 1); });
  return static_cast<size_t>(next);
}

}  // namespace tessera
