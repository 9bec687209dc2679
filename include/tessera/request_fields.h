#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>

#include "tessera/complete.h"
#include "tessera/request.h"
#include "tessera/words.h"

namespace tessera {

/// A field of a request with a plain value. The table of a request's fields is visited by the
/// checks of the library, the agreement between ranks, the command line, the server and Python.
struct Field {
  const char* name;   ///< in JSON, Python and messages; as an option `--name` with dashes
  const char* group;  ///< heading of the option in --help
  const char* value;  ///< the name of the value in --help, such as N; "": a switch
  const char* help;   ///< one line on the field for --help
  /// Bounds of a number, inclusive; the default may lie outside. Both 0: no bounds.
  double least = 0, most = 0;
  bool served = true;  ///< a client of the server may give the field
};

/// The part of visit_fields for start images, adapters and files.
template <class Request, class Visit>
void visit_source_fields(Request& request, Visit&& visit) {
  const char* group = "Image to image";
  visit({"strength", group, "S", "Share of the steps that run, 0 to 1 (default 0.6)", 0, 1},
        request.strength);
  visit({"mask_alpha", group, "", "Repaint what is transparent"}, request.alpha_mask);
  visit({"mask_soft", group, "", "Repaint grey in part (default: from one half)"},
        request.soft_mask);
  visit({"mask_blur", group, "R", "Blur radius of the mask in pixels (default 0)", 0, 1000},
        request.mask_blur);
  visit({"padding_mask_crop", group, "P", "Paint the mask's region and so many pixels around it", 0,
         16384},
        request.padding_mask_crop);
  visit({"image_fit", group, "M", "To the size: stretch (default), fill or crop"},
        request.image_fitting);
  group = "Adapters";
  visit({"merge_lora", group, "", "Into the weights, not beside their products", 0, 0, false},
        request.merge_lora);
  group = "Files";
  visit({"overwrite", group, "", "Replace files that Tessera did not write", 0, 0, false},
        request.overwrite);
  visit({"compare_steps", group, "", "Add the experts' similarity to the report", 0, 0, false},
        request.compare_steps);
  group = "Execution";
  visit({"vae_chunk", group, "N", "Lines at a time in the VAE (default: all)", 1, 1 << 20, false},
        request.vae_chunk);
}

/// Calls `visit(field, value)` for each field of the request with a plain value: a bool, a number,
/// a text, a choice, or a list of numbers. A new field of this kind needs a line here, and its use.
template <class Request, class Visit>
requires std::same_as<std::remove_const_t<Request>, GenerateRequest>
void visit_fields(Request& request, Visit&& visit) {
  // Names every member, so that a new member is noticed here. Members without a line below have
  // forms of their own in each program: subjects, images, adapters, files, and how to decode.
  auto& [classes, prompts, negative_prompt, embeddings, clean_caption, text_tokens, steps, guidance,
         true_guidance, guidance_rescale, cfg_normalization, cfg_truncation, guidance_start, width,
         height, binning, fit, frames, count, seed, seeds, noise, scheduler, initial_latents,
         initial_tensors, save_latents, trace, decode, vae_tiling, vae_tile, vae_chunk,
         compare_steps, previews, overwrite, images, strength, mask, alpha_mask, soft_mask,
         mask_blur, image_fitting, outpaint, loras, merge_lora, cache, timesteps, sigmas,
         padding_mask_crop] = request;
  constexpr double large = 1 << 20;
  const char* group = "Common";
  visit({"steps", group, "N", "Denoising steps (default: the model's)", 1, 100'000}, steps);
  visit({"seed", group, "S", "Seed of the initial noise (default 0)"}, seed);
  visit({"width", group, "W", "Size in pixels (default: as trained)", 1, large}, width);
  visit({"height", group, "H", "", 1, large}, height);
  group = "Prompt";
  visit({"text_tokens", group, "N", "Tokens that T5 reads (default: the model's)", 1, 1 << 16},
        text_tokens);
  visit({"clean_caption", group, "B", "Clean prompts of PixArt: on or off (default on)"},
        clean_caption);
  visit({"count", group, "N", "Samples of each class or prompt (default 1)", 1, 100'000}, count);
  group = "Sampling";
  visit({"timesteps", group, "N[,N...]", "Timesteps of the steps, largest first"}, timesteps);
  visit({"sigmas", group, "N[,N...]", "Sigmas of the steps, largest first"}, sigmas);
  visit({"guidance", group, "G", "Guidance scale, 1: none (default: the model's)", 0, 1000},
        guidance);
  visit({"true_guidance", group, "G", "FLUX: guidance by a negative prompt (default 1)", 0, 1000},
        true_guidance);
  visit({"guidance_rescale", group, "R", "Rescale guided predictions, 0 to 1 (default 0)", 0, 1},
        guidance_rescale);
  visit({"cfg_normalization", group, "N", "Limit of guided over conditional norm (default 0)", 0,
         1000},
        cfg_normalization);
  visit({"cfg_truncation", group, "T", "Share of time with guidance, 0 to 1 (default 1)", 0, 1},
        cfg_truncation);
  visit({"guidance_start", group, "T", "Share of time before guidance, 0 to 1 (default 0)", 0, 1},
        guidance_start);
  visit({"scheduler", group, "S", "Scheduler, e.g. unipc (default: the model's)"}, scheduler);
  visit({"cache", group, "C[,K=V]", "Reuse results of steps: fbcache,threshold=0.1"}, cache);
  visit({"noise", group, "R", "Noise generator: torch (default) or philox"}, noise);
  visit({"frames", group, "N", "Frames of a video (default: as trained)", 1, 1 << 16}, frames);
  visit({"fit", group, "", "Compute sizes between multiples larger, and crop"}, fit);
  visit({"binning", group, "B", "Use the nearest trained size: on, off (default off)"}, binning);
  visit_source_fields(request, visit);
}

/// The same for a request for text.
template <class Request, class Visit>
requires std::same_as<std::remove_const_t<Request>, CompleteRequest>
void visit_fields(Request& request, Visit&& visit) {
  // Members without a line below: prompts, texts that end an answer, and a file.
  auto& [prompts, prompt_ids, chat, raw, max_tokens, block, decode, as_published, steps, cache,
         stop_at_eos, select, select_refresh, select_prefill, temperature, top_k, top_p,
         repetition_penalty, seed, n, logprobs, stop, draws] = request;
  constexpr double tokens = 1 << 16;
  const char* group = "Common";
  visit(
      {"max_tokens", group, "N", "Tokens of an answer (default: the model's, or 128)", 1, 1 << 20},
      max_tokens);
  group = "Sampling";
  visit({"temperature", group, "T", "Temperature; 0 (default) is greedy", 0, 100}, temperature);
  visit({"seed", group, "S", "Seed of the draws (default 0)"}, seed);
  visit({"top_k", group, "K", "Draw from the K likeliest tokens (default 0: all)", 0, 1 << 30},
        top_k);
  visit({"top_p", group, "P", "Draw from tokens of probability P (default 1: all)", 0, 1}, top_p);
  visit({"repetition_penalty", group, "R", "Penalty for repeated tokens (default 1: none)", 0, 100},
        repetition_penalty);
  visit({"n", "Answers", "N", "Answers to each prompt, by seed (default 1)", 1, 10'000}, n);
  group = "Input and output";
  visit({"raw", group, "", "Use prompts without the chat template"}, raw);
  visit({"logprobs", group, "N", "Log probabilities of N tokens, in JSON", 0, 1000}, logprobs);
  group = "Decoding";
  visit({"decode", group, "RULE", "steps:N, threshold:T, factor:F, hierarchy:T,LOW, ..."}, decode);
  visit({"block", group, "N", "Tokens of a block (default: the model's)", 1, tokens}, block);
  visit({"steps", group, "N", "Steps of a block's schedule (default: the rule's)", 1, tokens},
        steps);
  visit({"as_published", group, "", "Run the passes of the published programs", 0, 0, false},
        as_published);
  visit({"cache", group, "C", "K/V cache: none, prefix, dual, block, vicinity:B,A,W"}, cache);
  visit({"stop_at_eos", group, "S", "End at EOS: none, block or early (default)"}, stop_at_eos);
  group = "Expert sharing";
  visit({"select", group, "RULE", "Expert sharing, e.g. des-max:0.25 (default vanilla)"}, select);
  visit({"select_refresh", group, "S", "Share experts in cache refreshes: on (default), off"},
        select_refresh);
  visit({"select_prefill", group, "", "Share experts in prefill passes, too"}, select_prefill);
}

/// Kinds of values that a program reads from a word or a text.
template <class Value>
concept WordValue = std::is_enum_v<Value> || std::same_as<Value, CachePolicy> ||
    std::same_as<Value, std::optional<StepCache>>;

/// Reads a value from its word. Throws Error(usage).
template <WordValue Value>
void read_word(const std::string& word, const char* name, Value& value) {
  if constexpr (std::same_as<Value, SchedulerName>)
    value = parse_scheduler(word);
  else if constexpr (std::same_as<Value, CachePolicy>)
    value = parse_cache(word);
  else if constexpr (std::same_as<Value, std::optional<StepCache>>)
    value = parse_step_cache(word);
  else
    value = choice_of<Value>(word, name);
}
/// Returns the word of a value; "" for none.
template <WordValue Value>
std::string word_for(const Value& value) {
  if constexpr (std::same_as<Value, CachePolicy>)
    return value.kind == KvCache::vicinity
               ? "vicinity:" + std::to_string(value.before) + "," + std::to_string(value.after) +
                     "," + std::to_string(value.warmup)
               : word_of(value.kind);
  else if constexpr (std::same_as<Value, std::optional<StepCache>>)
    return value ? to_string(*value) : "";
  else
    return word_of(value);
}

}  // namespace tessera
