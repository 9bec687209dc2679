#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/weight_files.h"

namespace tessera {

/// The content of an output file. `model` and `store` are folders.
enum class FileKind : uint8_t {
  image,
  video,
  report,
  latents,
  trace,
  tensors,
  plan_costs,
  chat,
  model,
  store
};

/// An input file of a run.
struct RunInput {
  std::string option;  ///< its name in messages: "--prompt-file"
  std::string path;    ///< "" or "-": none
};
/// An output file of a run.
struct RunOutput {
  std::string option;
  /// "": none. Images and videos may also go to a folder, an existing path or a path with '/' at
  /// its end; their names are then numbers, and a video's frames are separate files.
  std::string path;
  FileKind kind = FileKind::image;
  int64_t count = 1;  ///< images or videos; several have numbered names. 0: unknown
};
/// All files of a run.
struct RunFiles {
  std::string model;  ///< as for Model::open; "": none
  std::vector<RunInput> inputs{};
  std::vector<RunOutput> outputs{};
  bool overwrite = false;  ///< existing files of any content are replaced
  WeightFiles weights{};   ///< inputs too
};

/// Throws Error(usage), and leaves nothing behind, for an output without write access, an output
/// equal to an input, another output or a numbered name of another (also through links), an output
/// in the model's folder or the hub's cache, and, without `overwrite`, an existing file unless
/// Tessera wrote the same kind, by its content. Empty files may be replaced. Removes temporary
/// files of killed runs beside the outputs. Call before reading anything; Model calls this for the
/// files of a request.
void check_files(const RunFiles& files);

/// The name of image or video `number` among several: "c-0007.png" for "c.png", "d/0007.png" for a
/// folder.
std::string numbered_name(const std::string& output, size_t number);
/// The next number after the highest in a folder: for images ("0007.png"), or for folders of video
/// frames ("video-0007"). 0 without any.
size_t next_number(const std::string& folder, FileKind kind);

}  // namespace tessera
