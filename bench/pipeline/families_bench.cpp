// A forward pass of a dense transformer family at full width with few blocks and random weights:
// a single row, without work done once for each request (texts).
//   families_bench [threads] [family:tokens[:form]] [times] [--device cpu|cuda] [--turns]
// Families: pixart, sd3, flux, hunyuan, cogvideox, klein, z_image; tokens: of the latent, a square
// number (for cogvideox 1024 a frame); form: bf16, or int8, int4 or int8+scores (int8 with scores
// of attention in int8). Prints a JSON line: milliseconds and the share of the limit of bf16
// products.
#include <optional>

#include "models/one_step.h"
#include "pipeline/ruled_weights.h"

using namespace tessera;
using bench::RuledWeights;

namespace {

struct Form {
  RuledWeights::Bits bits = RuledWeights::Bits::none;
  bool int8_scores = false;
};

std::optional<Form> form_of(const std::string& name) {
  using Bits = RuledWeights::Bits;
  if (name == "bf16") return Form{};
  if (name == "int8") return Form{Bits::int8};
  if (name == "int4") return Form{Bits::int4};
  if (name == "int8+scores") return Form{Bits::int8, true};
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const std::string shape = argc > 2 ? argv[2] : "pixart:1024";
  const int times = argc > 3 ? std::atoi(argv[3]) : 3;
  const bench::FamilyShape of(shape, "bf16");
  const std::optional<Form> form = form_of(of.form);
  if (!form) {
    std::fprintf(stderr, "no form '%s'\n", of.form.c_str());
    return 2;
  }
  const bench::OneStep step(bench::family_of(of.name), of.name, of.tokens,
                            RuledWeights(form->bits, place.device), place);
  const auto run = [&] { step.run(form->int8_scores); };
  const std::string title = "family " + of.form;
  if (place.on_gpu() || place.turns)
    place.measure(title, shape, times, run, 1);
  else
    bench::print_best(title, shape, times, run);
}
