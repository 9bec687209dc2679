// The library's time for the short requests of measure.py. The script measures a server with the
// same requests in turn: each line on standard input starts a request.
//
//   build/release/bench/request_bench 2
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tessera/engine.h"

namespace {

using namespace tessera;

void print(const char* model, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> duration =
      std::chrono::steady_clock::now() - start;
  std::puts(fmt::format("{{\"model\":\"{}\",\"ms\":{:.4f}}}", model, duration.count()).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  RunOptions options;
  options.threads = argc > 1 ? std::atoi(argv[1]) : 1;
  options.keep_parts = true;
  const Model shapes = Model::open("shapes", options), tasks = Model::open("tasks-a", options);
  GenerateRequest image;
  image.classes = {"red circle"};
  image.steps = 4;
  image.seed = 1;
  CompleteRequest text;
  text.prompts = {"sort hello="};
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("request_bench.{}.png", std::rand()))
          .string();
  for (bool draws = true; std::getchar() != EOF; draws = !draws)
    if (draws)
      print("shapes", [&] { save_png(shapes.generate(image).images[0], path); });
    else
      print("tasks-a", [&] { (void)tasks.complete(text); });
  std::filesystem::remove(path);
}
