#include "runtime/count_parameters.h"

#include <gtest/gtest.h>

#include "runtime/open_model.h"
#include "tessera/error.h"

namespace tessera::runtime {
namespace {

// As the classes of diffusers 0.42.1 and transformers 5.23 have them on empty tensors.
TEST(CountParameters, OfPublishedModelsAreThoseOfTheReference) {
  const struct {
    const char *model, *part;
    int64_t parameters;
  } kKnown[] = {{"pixart_alpha", "transformer", 611349152},
                {"pixart_alpha", "text_encoder", 4762310656},
                {"pixart_alpha", "vae", 83653863},
                {"flux_1_dev", "transformer", 11901408320},
                {"flux_1_schnell", "transformer", 11891178560},
                {"flux_1_dev", "vae", 83819683},
                {"hunyuan_dit", "transformer", 1499952032},
                {"cogvideox_2b", "transformer", 1693783872},
                {"cogvideox_5b", "transformer", 5570283072},
                {"cogvideox_5b", "vae", 215583907},
                {"cogvideox1_5_5b", "transformer", 5570676352},
                {"dit_moe_g", "transformer", 16503731232},
                {"z_image_turbo", "transformer", 6154908736},
                {"flux2_klein_4b", "transformer", 3875544576},
                {"llada_moe", "model", 7356880896},
                {"llada2_mini", "model", 16255643392}};
  for (const auto& known : kKnown) {
    ModelState state;
    open_published(known.model, {.threads = 1}, state);
    EXPECT_EQ(parameters_on_meta(state, state.folder.component(known.part)), known.parameters)
        << known.model << ' ' << known.part;
  }
}

TEST(CountParameters, UnknownNamesAreRefusedWithThoseThatAre) {
  ModelState state;
  try {
    open_published("flux_9", {}, state);
    FAIL() << "an unknown name was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("flux_1_dev"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::runtime
