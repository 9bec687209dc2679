#include "pipeline/agree.h"

#include <algorithm>
#include <filesystem>

#include "base/as_error.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/input_file.h"
#include "base/is_there.h"
#include "base/json.h"
#include "base/printable.h"
#include "comm/collectives.h"
#include "kernels/isa.h"
#include "kernels/unit.h"
#include "pipeline/model_state.h"
#include "pipeline/tensor_view.h"
#include "tessera/version.h"
#include "tessera/words.h"

namespace tessera::pipeline {
namespace {

constexpr const char* kUnit = "the unit";
constexpr size_t kShown = 60;             // longer values are told by their digests
constexpr int64_t kPiece = 4096;          // bytes of a file that are read at once
constexpr int64_t kMostPieces = 64;       // of a file
constexpr int64_t kTermsBytes = 1 << 20;  // more than any rank says

std::string digest_of(std::string_view bytes) {
  base::Digest digest;
  digest.add(bytes);
  return digest.text();
}

template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return std::to_string(static_cast<int>(value));
  else
    return fmt::format("{}", value);
}
template <class T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "the model's default";
}

// Every text behind its length, so that no two lists look alike.
std::string joined(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}:{} ", text.size(), text);
  return all;
}

void say_model(const ModelState& state, Terms& terms) {
  terms.say("the version", kVersion);
  terms.say("the instruction set", kernels::name_of(kernels::active_isa()));
  terms.say(kUnit, kernels::name_of(kernels::active_unit()));
  terms.say("--plan", to_string(state.options.plan));
  terms.say("--dtype", word_of(state.options.precision));
  terms.say("--device", name_of(state.place.device));
  for (const load::Component& part : state.folder.components) {
    terms.say("the configuration of " + part.name, part.config.dump());
    std::vector<std::string> paths;
    try {
      const load::TensorSet tensors = load::open_component(part.folder);
      for (const load::SafetensorsFile& file : tensors.files()) paths.push_back(file.path());
    } catch (const Error& e) {  // a tokenizer, a scheduler; what is needed is missed later
      if (e.code() == ErrorCode::cancelled) throw;
      terms.say("the weights of " + part.name, "none");
    }
    for (const std::string& path : paths)
      terms.file(fmt::format("the weights of {} ({})", part.name,
                             std::filesystem::path(path).filename().string()),
                 path);
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "spiece.model",
          "vocab.txt", "chat_template.jinja", "generation_config.json"}) {
      const std::string path = part.folder + "/" + name;
      if (base::is_there(path)) terms.file(fmt::format("{} of {}", name, part.name), path);
    }
  }
}

void say_tensors(const TensorViews& tensors, Terms& terms) {
  for (const auto& [name, view] : tensors) {
    const tensor::Tensor x = tensor_of(name, view);
    terms.say(fmt::format("the tensor {} {} {}", base::printable(name), tensor::name_of(x.dtype()),
                          x.shape().str()),
              {static_cast<const char*>(x.raw()), static_cast<size_t>(x.bytes())});
  }
}

}  // namespace

void Terms::say(const std::string& what, std::string_view value) {
  const bool plain =
      std::all_of(value.begin(), value.end(), [](char c) { return c >= 32 && c < 127; });
  items_.emplace_back(
      what, plain && value.size() <= kShown
                ? base::printable(value)
                : fmt::format("{} characters, digest {}", value.size(), digest_of(value)));
}

void Terms::file(const std::string& what, const std::string& path) {
  const base::InputFile in(path);
  const int64_t size = in.size();
  base::Digest digest;
  std::vector<char> piece(kPiece);
  const int64_t pieces = std::clamp<int64_t>((size + kPiece - 1) / kPiece, 0, kMostPieces);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t last = std::max<int64_t>(size - kPiece, 0);
    const int64_t at =
        pieces > 1 ? last / (pieces - 1) * i + (i == pieces - 1 ? last % (pieces - 1) : 0) : 0;
    const int64_t bytes = std::min(kPiece, size);
    in.read(at, piece.data(), bytes);
    digest.add({piece.data(), static_cast<size_t>(bytes)});
  }
  items_.emplace_back(what, fmt::format("{} bytes, digest {}", size, digest.text()));
}

Terms terms_of(const ModelState& state, const GenerateRequest& request) {
  Terms terms;
  terms.say("the command", "generate");
  say_model(state, terms);
  // Names every member, so that a new one cannot be forgotten here.
  const auto& [classes, prompts, negative_prompt, embeddings, clean_caption, text_tokens, steps,
               guidance, true_guidance, guidance_rescale, width, height, binning, frames, count,
               seed, seeds, noise, scheduler, initial_latents, initial_tensors, save_latents, trace,
               decode, vae_tiling, vae_tile, vae_chunk, compare_steps, previews] = request;
  terms.say("--class", joined(classes));
  terms.say("the prompt", joined(prompts));
  terms.say("--negative-prompt", negative_prompt.value_or(""));
  if (!embeddings.empty()) terms.file("--embeddings", embeddings);
  terms.say("--clean-caption", clean_caption ? shown(*clean_caption) : "");
  terms.say("--text-tokens", shown(text_tokens));
  terms.say("--steps", shown(steps));
  terms.say("--guidance", shown(guidance));
  terms.say("--true-guidance", shown(true_guidance));
  terms.say("--guidance-rescale", shown(guidance_rescale));
  terms.say("--width", shown(width));
  terms.say("--height", shown(height));
  terms.say("--binning", shown(binning));
  terms.say("--frames", shown(frames));
  terms.say("--count", shown(count));
  terms.say("--seed", seeds.empty() ? shown(seed) : fmt::format("{}", fmt::join(seeds, ",")));
  terms.say("--rng", word_of(noise));
  terms.say("--scheduler", word_of(scheduler));
  if (!initial_latents.empty()) terms.file("--initial-latents", initial_latents);
  say_tensors(initial_tensors, terms);
  terms.say("--save-latents", save_latents.empty() ? "no" : "yes");
  terms.say("--trace", trace.empty() ? "no" : "yes");
  terms.say("--latents-only", decode ? "no" : "yes");
  terms.say("--vae-tiling", fmt::format("{} {}", shown(vae_tiling), vae_tile));
  terms.say("--vae-chunk", shown(vae_chunk));
  terms.say("--compare-steps", shown(compare_steps));
  terms.say("--preview", shown(previews));
  return terms;
}

Terms terms_of(const ModelState& state, const CompleteRequest& request) {
  Terms terms;
  terms.say("the command", "complete");
  say_model(state, terms);
  const auto& [prompts, prompt_ids, chat, raw, max_tokens, block, decode, as_published, steps,
               cache, stop_at_eos, select, select_refresh, select_prefill, temperature, top_k,
               top_p, repetition_penalty, seed, n, logprobs, stop] = request;
  terms.say("the prompt", joined(prompts));
  std::string ids;
  for (const auto& prompt : prompt_ids) ids += fmt::format("{};", fmt::join(prompt, ","));
  terms.say("--prompt-ids", ids);
  terms.say("--chat", chat);
  terms.say("--raw", shown(raw));
  terms.say("--max-tokens", shown(max_tokens));
  terms.say("--block", shown(block));
  terms.say("--decode", decode);
  terms.say("--as-published", shown(as_published));
  terms.say("--steps", shown(steps));
  terms.say("--cache", fmt::format("{}:{},{},{}", word_of(cache.kind), cache.before, cache.after,
                                   cache.warmup));
  terms.say("--stop-at-eos", word_of(stop_at_eos));
  terms.say("--select", select);
  terms.say("--select-refresh", shown(select_refresh));
  terms.say("--select-prefill", shown(select_prefill));
  terms.say("--temperature", shown(temperature));
  terms.say("--top-k", shown(top_k));
  terms.say("--top-p", shown(top_p));
  terms.say("--repetition-penalty", shown(repetition_penalty));
  terms.say("--seed", shown(seed));
  terms.say("--n", shown(n));
  terms.say("--logprobs", logprobs ? shown(*logprobs) : "none");
  terms.say("--stop", joined(stop));
  return terms;
}

Terms terms_of(const ModelState& state, const ForwardRequest& request) {
  Terms terms;
  terms.say("the command", "forward");
  say_model(state, terms);
  const auto& [component, inputs, tensors, outputs, trace, moe, vae_tiling, vae_tile, vae_chunk] =
      request;
  terms.say("--component", word_of(component));
  if (!inputs.empty()) terms.file("--inputs", inputs);
  say_tensors(tensors, terms);
  terms.say("--outputs", outputs.empty() ? "no" : "yes");
  terms.say("--trace", shown(trace));
  if (moe)
    terms.say("--moe", fmt::format("{} {} {} {} {}", moe->gate, moe->top_k, shown(moe->experts),
                                   moe->renormalise, shown(moe->capacity)));
  terms.say("--vae-tiling", fmt::format("{} {}", shown(vae_tiling), vae_tile));
  terms.say("--vae-chunk", shown(vae_chunk));
  return terms;
}

void agree(comm::Communicator& world, const std::function<Terms()>& terms) {
  using Items = std::vector<std::pair<std::string, std::string>>;
  tensor::Tensor mine;
  try {
    const std::string text = base::Json(terms().items()).dump();
    mine = tensor::Tensor::empty({std::ssize(text)}, tensor::DType::u8);
    std::copy(text.begin(), text.end(), static_cast<char*>(mine.raw()));
  } catch (const std::exception& e) {  // no code of an error is the bracket that terms begin with
    const Error error = named(e, world.rank(), "compares the run");
    mine = word_of(&error);
  }
  const auto all = comm::all_gather(world, mine, {"agree", -1}).wait();
  for (const tensor::Tensor& word : all)
    if (word.elements() > 0 && *static_cast<const char*>(word.raw()) != '[') heed(word);
  std::vector<Items> said;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    require(all[rank].bytes() <= kTermsBytes, ErrorCode::rank, "rank {} says {} bytes of terms",
            rank, all[rank].bytes());
    const std::string_view theirs(static_cast<const char*>(all[rank].raw()),
                                  static_cast<size_t>(all[rank].bytes()));
    said.push_back(base::parse_json(theirs, fmt::format("terms of rank {}", rank)).get<Items>());
  }
  for (size_t rank = 1; rank < said.size(); ++rank) {
    const Items &one = said.front(), &other = said[rank];
    const auto [a, b] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
    if (a == one.end() && b == other.end()) continue;
    const bool same_name = a != one.end() && b != other.end() && a->first == b->first;
    const std::string& what = a != one.end() ? a->first : b->first;
    fail(ErrorCode::rank, "ranks do not run the same: {} of rank {} is {}, of rank 0 {}; {}", what,
         rank, same_name ? b->second : "another thing", a != one.end() ? a->second : "none",
         what == kUnit ? "choose one for all: TESSERA_UNIT=fma"
                       : "start all ranks with one program, model and request");
  }
}

void agree(const RunOptions& options, const std::function<Terms()>& terms) {
  if (options.processes) agree(*options.processes->state().world, terms);
}

bool first_process(const RunOptions& options) {
  return !options.processes || options.processes->rank() == 0;
}

bool as_first_says(const RunOptions& options, bool word) {
  return options.processes ? comm::agreed(*options.processes->state().world, 0, word, {"go", -1})
                           : word;
}

int64_t most_of(const RunOptions& options, int64_t value) {
  if (options.processes)
    comm::all_reduce_max(*options.processes->state().world, {&value, 1}, {"go", -1});
  return value;
}

void heed(const tensor::Tensor& word) {
  if (const auto error = comm::error_of(word)) throw Error(*error);
}

namespace {

// "rank 3, which decodes: ..."
bool names_a_rank(std::string_view text) {
  constexpr std::string_view kRank = "rank ";
  if (!text.starts_with(kRank)) return false;
  text.remove_prefix(kRank.size());
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && text.substr(digits).starts_with(", which ");
}

// What is no Error comes of a caller's callback, and its ranks stop for that.
Error told_to_others(const std::exception& e, int rank) {
  const Error error = named(e, rank, "computes");
  const bool foreign = error.code() == ErrorCode::rank && !dynamic_cast<const Error*>(&e);
  return foreign ? Error(ErrorCode::cancelled, fmt::format("rank {} stopped: {}", rank, e.what()))
                 : error;
}

// In no report: nobody was foretold it.
std::vector<tensor::Tensor> said_by_all(comm::Communicator& world, const tensor::Tensor& mine) {
  constexpr comm::Tag kTag{"go", -1};
  for (int to = 0; to < world.size(); ++to)
    if (to != world.rank()) world.post(to, mine, kTag);
  std::vector<tensor::Tensor> all;
  for (int from = 0; from < world.size(); ++from)
    all.push_back(from == world.rank() ? mine : world.receive(from, kTag).wait());
  return all;
}

}  // namespace

Error named(const std::exception& thrown, int rank, const char* does) {
  Error error = base::as_error(thrown);
  const bool all_are_told = error.code() == ErrorCode::rank || error.code() == ErrorCode::cancelled;
  if (rank == 0 || all_are_told || names_a_rank(error.what())) return error;
  return {error.code(), fmt::format("rank {}, which {}: {}", rank, does, error.what())};
}

void end_all(comm::Communicator& ranks, int in_world, const std::exception& thrown,
             const char* does) {
  ranks.check();
  const Error error = named(thrown, in_world, does);
  if (error.code() != ErrorCode::cancelled) ranks.fail_all(error);
  throw Error(error);
}

void together(const RunOptions& options, const char* does, const std::function<void()>& work) {
  together(options, nullptr, does, work);
}

void together(const RunOptions& options, comm::Communicator* request, const char* does,
              const std::function<void()>& work) {
  if (!options.processes) return work();
  tensor::Tensor word = word_of(nullptr);
  try {
    work();
  } catch (const std::exception& e) {
    const Error error = named(e, options.processes->rank(), does);
    word = word_of(&error);
  }
  comm::Communicator& world = request ? *request : *options.processes->state().world;
  for (const tensor::Tensor& said : comm::all_gather(world, word, {"go", -1}).wait())
    if (const auto error = comm::error_of(said)) throw SharedError(*error);
}

void end_together(comm::Communicator& world,
                  const std::function<void(comm::Communicator& ranks)>& part) {
  auto ranks = world.request();
  std::exception_ptr thrown;
  bool shared = false;
  try {
    part(*ranks);
  } catch (const std::exception& e) {
    world.check();
    shared = dynamic_cast<const SharedError*>(&e) != nullptr;
    const Error error = shared ? base::as_error(e) : told_to_others(e, world.rank());
    if (error.code() == ErrorCode::rank) throw;
    ranks->fail_all(error);
    thrown = std::current_exception();
  }
  std::optional<Error> own = ranks->failed();
  if (own && !shared) own = named(*own, world.rank(), "computes");
  ranks = nullptr;  // with what was sent and nobody takes, behind which the words would wait
  const Error* const mine = own ? &*own : nullptr;
  const std::vector<tensor::Tensor> words = said_by_all(world, word_of(mine));
  if (own && world.rank() == 0 && thrown) std::rethrow_exception(thrown);  // a callback's, too
  for (const tensor::Tensor& word : words) heed(word);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace tessera::pipeline
