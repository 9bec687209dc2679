#include "tessera/words.h"

#include <fmt/ranges.h>

#include <type_traits>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "tessera/complete.h"
#include "tessera/plan.h"
#include "tessera/request.h"
#include "tessera/step_cache.h"

namespace tessera {
namespace {

template <class Choice>
using Words = std::vector<std::pair<const char*, Choice>>;

// The words of an option type, in the order of listings; overloaded by the type.
const auto& table(std::type_identity<DeviceKind>) {
  static const Words<DeviceKind> all{{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}};
  return all;
}
const auto& table(std::type_identity<ExpertActivation>) {
  using A = ExpertActivation;
  static const Words<A> all{{"swiglu", A::swiglu},
                            {"relu", A::relu},
                            {"gelu", A::gelu},
                            {"gelu_tanh", A::gelu_tanh},
                            {"silu", A::silu}};
  return all;
}
const auto& table(std::type_identity<FinishReason>) {
  using F = FinishReason;
  static const Words<F> all{{"end", F::end}, {"stop", F::stop}, {"length", F::length}};
  return all;
}
const auto& table(std::type_identity<KvCache>) {
  using C = KvCache;
  static const Words<C> all{{"auto", C::automatic}, {"none", C::none},   {"prefix", C::prefix},
                            {"dual", C::dual},      {"block", C::block}, {"vicinity", C::vicinity}};
  return all;
}
const auto& table(std::type_identity<ImageFitting>) {
  using F = ImageFitting;
  static const Words<F> all{{"stretch", F::stretch}, {"fill", F::fill}, {"crop", F::crop}};
  return all;
}
const auto& table(std::type_identity<ModelPart>) {
  using M = ModelPart;
  static const Words<M> all{
      {"transformer", M::transformer},       {"model", M::model},
      {"moe_layer", M::moe_layer},           {"vae.decode", M::vae_decode},
      {"vae.encode", M::vae_encode},         {"text_encoder", M::text_encoder},
      {"text_encoder_2", M::text_encoder_2}, {"text_encoder_3", M::text_encoder_3}};
  return all;
}
const auto& table(std::type_identity<NoiseSource>) {
  using N = NoiseSource;
  static const Words<N> all{{"torch", N::torch}, {"philox", N::philox}};
  return all;
}
const auto& table(std::type_identity<PassKind>) {
  using P = PassKind;
  static const Words<P> all{
      {"full", P::full},     {"refresh", P::refresh}, {"suffix", P::suffix},    {"block", P::block},
      {"window", P::window}, {"prefill", P::prefill}, {"finalise", P::finalise}};
  return all;
}
const auto& table(std::type_identity<Phase>) {
  static const Words<Phase> all{{"encode", Phase::encode},
                                {"load", Phase::load},
                                {"denoise", Phase::denoise},
                                {"decode", Phase::decode},
                                {"quantise", Phase::quantise}};
  return all;
}
const auto& table(std::type_identity<PlanAxis>) {
  using A = PlanAxis;
  static const Words<A> all{
      {"data", A::data},   {"cfg", A::cfg},         {"pipefusion", A::pipefusion},
      {"ring", A::ring},   {"ulysses", A::ulysses}, {"distrifusion", A::distrifusion},
      {"shard", A::shard}, {"tensor", A::tensor}};
  return all;
}
const auto& table(std::type_identity<Precision>) {
  using P = Precision;
  static const Words<P> all{
      {"f32", P::f32}, {"bf16", P::bf16}, {"int8", P::int8}, {"int4", P::int4}};
  return all;
}
const auto& table(std::type_identity<SchedulerName>) {
  using S = SchedulerName;
  static const Words<S> all{{"auto", S::automatic},
                            {"rectified-flow", S::rectified_flow},
                            {"flow-euler", S::flow_euler},
                            {"dpm++", S::dpm_multistep},
                            {"dpm++-single", S::dpm_singlestep},
                            {"unipc", S::unipc},
                            {"deis", S::deis},
                            {"euler", S::euler},
                            {"euler-ancestral", S::euler_ancestral},
                            {"heun", S::heun},
                            {"lcm", S::lcm},
                            {"ddim", S::ddim},
                            {"ddpm", S::ddpm},
                            {"cogvideox-ddim", S::cogvideox_ddim},
                            {"cogvideox-dpm", S::cogvideox_dpm}};
  return all;
}
const auto& table(std::type_identity<StepCacheRule>) {
  using R = StepCacheRule;
  static const Words<R> all{{"fbcache", R::fbcache},       {"dbcache", R::dbcache},
                            {"taylorseer", R::taylorseer}, {"magcache", R::magcache},
                            {"teacache", R::teacache},     {"drift", R::drift}};
  return all;
}
const auto& table(std::type_identity<StopAtEos>) {
  using S = StopAtEos;
  static const Words<S> all{{"none", S::none}, {"block", S::block}, {"early", S::early}};
  return all;
}

}  // namespace

template <class Choice>
const char* word_of(Choice choice) {
  for (const auto& [word, value] : table(std::type_identity<Choice>{}))
    if (value == choice) return word;
  return "?";
}

template <class Choice>
std::vector<std::string> words_of() {
  std::vector<std::string> words;
  for (const auto& [word, value] : table(std::type_identity<Choice>{})) words.emplace_back(word);
  return words;
}

template <class Choice>
Choice choice_of(const std::string& word, const std::string& field) {
  for (const auto& [name, value] : table(std::type_identity<Choice>{}))
    if (word == name) return value;
  fail(ErrorCode::usage, "{} {} is not known; known are {}", field, base::printable(word),
       fmt::join(words_of<Choice>(), ", "));
}

#define TESSERA_WORDS(Choice)                           \
  template const char* word_of(Choice);                 \
  template std::vector<std::string> words_of<Choice>(); \
  template Choice choice_of(const std::string&, const std::string&)
TESSERA_WORDS(DeviceKind);
TESSERA_WORDS(ExpertActivation);
TESSERA_WORDS(FinishReason);
TESSERA_WORDS(ImageFitting);
TESSERA_WORDS(KvCache);
TESSERA_WORDS(ModelPart);
TESSERA_WORDS(NoiseSource);
TESSERA_WORDS(PassKind);
TESSERA_WORDS(Phase);
TESSERA_WORDS(PlanAxis);
TESSERA_WORDS(Precision);
TESSERA_WORDS(SchedulerName);
TESSERA_WORDS(StepCacheRule);
TESSERA_WORDS(StopAtEos);
#undef TESSERA_WORDS

}  // namespace tessera
