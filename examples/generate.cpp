// Generates an image of a class with the shipped model, and saves the image as a PNG file.

#include <cstdio>

#include "tessera/engine.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate CLASS OUT.png\n");
    return 2;
  }
  try {
    tessera::Model model = tessera::Model::open("shapes", {.threads = 2});
    tessera::GenerateRequest request;
    request.classes = {argv[1]};
    request.steps = 10;
    const tessera::GenerateResult result = model.generate(request);
    tessera::save_png(result.images.at(0), argv[2]);
    std::printf("%s, %d forward passes\n", result.images[0].label.c_str(), result.report.forwards);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
