#include "load/name_tables.h"

#include "load/names/autoencoder_kl.h"
#include "load/names/diffusion_gemma.h"
#include "load/names/flux.h"
#include "load/names/flux2.h"
#include "load/names/hunyuan_dit.h"
#include "load/names/llada.h"
#include "load/names/pixart.h"
#include "load/names/qwen3.h"
#include "load/names/sd3.h"
#include "load/names/t5.h"
#include "load/names/z_image.h"

namespace tessera::load {

const std::vector<const NameTable*>& name_tables() {
  static const std::vector<const NameTable*> all{
      &names::flux(),           &names::flux2(),       &names::sd3(),    &names::z_image(),
      &names::pixart(),         &names::hunyuan_dit(), &names::t5(),     &names::qwen3(),
      &names::autoencoder_kl(), &names::llada_moe(),   &names::llada2(), &names::diffusion_gemma()};
  return all;
}

const NameTable* name_table_of(const std::string& type) {
  for (const NameTable* table : name_tables())
    for (const char* name : table->types)
      if (type == name) return table;
  return nullptr;
}

}  // namespace tessera::load
