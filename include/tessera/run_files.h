#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// The content of a file that a run writes. `model` and `store` are folders.
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

/// A file that a run reads.
struct RunInput {
  std::string option;  ///< names it in messages: "--prompt-file"
  std::string path;    ///< "" or "-": none
};
/// A file that a run writes.
struct RunOutput {
  std::string option;
  /// "": none. Images and videos may also go to a folder, which exists or ends in '/': they then
  /// have numbers as names, and a video's frames are files of it.
  std::string path;
  FileKind kind = FileKind::image;
  int64_t count = 1;  ///< images or videos; several have numbers in their names. 0: not known yet
};
/// All files of a run.
struct RunFiles {
  std::string model;  ///< as Model::open takes it; "": none
  std::vector<RunInput> inputs{};
  std::vector<RunOutput> outputs{};
  bool overwrite = false;  ///< existing files are replaced, whatever they hold
};

/// Throws Error(usage), and leaves nothing behind, for an output that cannot be written, that is
/// one file with an input, another output or a numbered name of it (also through links), that lies
/// in the folder of the model or in the hub's cache, or, without `overwrite`, that exists and is no
/// output of the same kind which Tessera wrote: its content says so. An empty file may be replaced.
/// Removes what killed runs left beside the outputs. Ask before anything is read; Model asks it of
/// the files that a request names.
void check_files(const RunFiles& files);

/// The name of image or video `number` of several: "c-0007.png" of "c.png", "d/0007.png" of a
/// folder.
std::string numbered_name(const std::string& output, size_t number);
/// The number behind the highest in the names of a folder: of images ("0007.png"), or of the
/// folders in which videos have their frames ("video-0007"). 0 where there are none.
size_t next_number(const std::string& folder, FileKind kind);

}  // namespace tessera
