#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "tessera/engine.h"

namespace tessera::cli {

/// Where pictures or videos go: a file whose name says its kind, or a folder.
struct Output {
  std::optional<std::string> asked;  // not set: tessera.png, or tessera.mp4
  std::string path;                  // known once it was checked
  std::optional<double> rate;        // frames a second; not set: 8
  bool videos = false;               // what is made
};

/// Everything that is going to be written can be written; completes the path, and returns it if it
/// is a file's. Asked before the work. `count` pictures or videos. Throws Error(usage).
std::string check_output(Output& output, size_t count);

/// Writes all pictures or videos and prints their names; `text` is what is written into picture i.
void save_pictures(const GenerateResult& result, const Output& output,
                   const std::function<std::string(size_t i)>& text, const std::stop_token& stop);

}  // namespace tessera::cli
