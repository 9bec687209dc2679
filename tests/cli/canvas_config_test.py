#!/usr/bin/env python3
"""Changed configurations of DiffusionGemma: each is refused by name, or computes what it says."""

import json
import unittest

from program import DATA, ProgramTest

MODEL = DATA / "moe/diffusion_gemma_canvas256/model"
ASK = ("--dtype", "f32", "--prompt-ids", ",".join(map(str, range(60, 110))), "--block", 16, "--max-tokens", 40, "--steps", 4, "--json")
SAME, OTHER = "as before", "something else"
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
ROPE = {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}


def full(**more):
    return {"rope_parameters": {**ROPE, "full_attention": {**ROPE["full_attention"], **more}}}


# Keys above text_config; None takes a key away.
ABOVE = [
    ({"architectures": None}, SAME),
    ({"architectures": ["DiffusionGemmaForConditionalGeneration"]}, "DiffusionGemmaForConditionalGeneration"),
    ({"model_type": "diffusion_gemma_2"}, SAME),  # the architecture names it
    ({"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"]}, "Gemma4ForConditionalGeneration"),
    ({"architectures": None, "model_type": None}, "model_type"),
    ({"canvas_length": None}, SAME),  # 256, and --block says 16
    ({"canvas_length": 0}, "canvas_length"),
    ({"canvas_length": "16"}, "canvas_length"),
    ({"tie_word_embeddings": None}, SAME),
    ({"tie_word_embeddings": False}, "lm_head.weight"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ({"vision_config": {"model_type": "gemma4_vision", "depth": 99}, "vision_soft_tokens_per_image": 280}, SAME),
    ({"audio_config": {"model_type": "gemma4_audio"}}, "audio_config"),
    ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantization_config"),
    ({"image_token_id": 70}, "image token 70"),
    ({"image_token_id": 256}, "image_token_id"),
    ({"text_config": None}, "text_config"),
    ({"text_config": []}, "text_config"),
    ({"eos_token_id": 60}, SAME),  # the reference reads it of generation_config.json
    ({"block_length": 32}, "block_length"),
    ({"use_cache": False, "dtype": "float32", "transformers_version": "6.1.0"}, SAME),
]
TEXT = [
    ({"hidden_activation": "silu"}, "hidden_activation"),
    ({"hidden_activation": None}, SAME),
    ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act"),
    ({"final_logit_softcapping": None}, SAME),
    ({"final_logit_softcapping": 12.5}, OTHER),
    ({"final_logit_softcapping": 0}, "final_logit_softcapping"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ({"attn_logit_softcapping": None}, SAME),
    ({"use_bidirectional_attention": None}, SAME),
    ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
    ({"attention_bias": True}, "attention_bias"),
    ({"attention_k_eq_v": True}, SAME),
    ({"attention_k_eq_v": False}, "attention_k_eq_v"),
    ({"enable_moe_block": True}, SAME),
    ({"enable_moe_block": False}, "enable_moe_block"),
    ({"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False}, SAME),
    ({"num_kv_shared_layers": 1}, "num_kv_shared_layers"),
    ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input"),
    ({"use_double_wide_mlp": True}, "use_double_wide_mlp"),
    ({"rms_norm_eps": None}, SAME),
    ({"rms_norm_eps": 0.1}, OTHER),
    ({"rms_norm_eps": "1e-6"}, "rms_norm_eps"),
    ({"sliding_window": 8}, OTHER),
    ({"sliding_window": None}, OTHER),  # 1024
    ({"sliding_window": 0}, "sliding_window"),
    ({"layer_types": None}, SAME),  # every sixth is global, and the last
    ({"layer_types": LAYERS[:2]}, "layer_types"),
    ({"layer_types": [*LAYERS[:2], "chunked_attention"]}, "chunked_attention"),
    ({"layer_types": [*LAYERS[:2], "sliding_attention"]}, SAME),  # the last is global whatever the list says
    ({"layer_types": "full_attention"}, "layer_types"),
    ({"rope_parameters": None}, SAME),
    ({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}, "rope_theta"),
    (full(partial_rotary_factor=0.5), OTHER),
    (full(rope_theta=500.0), OTHER),
    (full(rope_type="yarn"), "rope_type"),
    (full(rope_type="default"), "rope_type"),
    (full(factor=8.0), "factor"),
    (full(attention_scaling=2.0), "attention_scaling"),
    ({"rope_theta": 10000.0}, "rope_theta"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 8}}, "rope_scaling"),
    ({"top_k_experts": 3}, OTHER),
    ({"top_k_experts": 33}, "top_k_experts"),
    ({"top_k_experts": None}, "top_k_experts"),
    ({"num_experts_per_tok": 4}, "num_experts_per_tok"),
    ({"num_experts": 31}, "router.proj.weight"),
    ({"moe_intermediate_size": 16}, "experts"),
    ({"expert_intermediate_size": 8}, "expert_intermediate_size"),
    ({"norm_topk_prob": False}, "norm_topk_prob"),
    ({"head_dim": None}, "k_norm.weight"),
    ({"head_dim": 7}, "layer 0"),
    ({"global_head_dim": None}, "layers.2"),
    ({"num_key_value_heads": 3}, "3 key heads"),
    ({"num_global_key_value_heads": None}, "layers.2"),
    ({"global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": {"2": {"head_dim": 16, "num_key_value_heads": 1}}}, SAME),
    ({"per_layer_config": {"2": {"head_dim": 16, "sliding_window": 9}}}, "sliding_window"),
    ({"per_layer_config": {"3": {"head_dim": 16}}}, "per_layer_config"),
    ({"vocab_size": 255}, "embed_tokens"),
    ({"vocab_size": None}, "vocab_size"),
    ({"query_pre_attn_scalar": 8}, "query_pre_attn_scalar"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps"),
    ({"max_position_embeddings": 64}, "context of 64"),
    ({"max_position_embeddings": None}, SAME),
]
# generation_config.json; ALL takes the file away, and --steps is given all the same.
ALL = "the file"
GENERATION = [
    ({ALL: None}, SAME),
    ({"max_new_tokens": None}, SAME),
    ({"max_new_tokens": 0}, "max_new_tokens"),
    ({"eos_token_id": None}, SAME),
    ({"eos_token_id": [1, 256]}, "eos_token_id"),
    ({"pad_token_id": 3}, SAME),
    ({"t_max": 1.6}, OTHER),
    ({"t_min": 0.9}, "t_min"),
    ({"t_max": 0}, "t_max"),
    ({"t_min": None, "t_max": None}, SAME),
    ({"sampler_config": None}, SAME),
    ({"sampler_config": {"entropy_bound": 3.0}}, OTHER),
    ({"sampler_config": {"_cls_name": "DiscreteDDIMSamplerConfig"}}, "DiscreteDDIMSamplerConfig"),
    ({"sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "gamma": 1}}, "gamma"),
    ({"sampler_config": "entropy"}, "sampler_config"),
    ({"entropy_bound": 0.1}, "entropy_bound"),
    ({"stability_threshold": -1}, "stability_threshold"),
    ({"confidence_threshold": "low"}, "confidence_threshold"),
    ({"num_diffusion_steps": 64}, "num_diffusion_steps"),
    ({"max_length": 512}, "max_length"),
    ({"min_new_tokens": 5}, "min_new_tokens"),
    ({"temperature": 0.7}, "temperature"),
    ({"temperature": 1.0, "top_p": 1.0, "do_sample": False}, SAME),
    ({"repetition_penalty": 1.2}, "repetition_penalty"),
    ({"num_beams": 4}, "num_beams"),
    ({"suppress_tokens": [5]}, "suppress_tokens"),
]


class Changed(ProgramTest):
    def said(self, *arguments):
        done = self.run_here("complete", *arguments, *ASK)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)["completions"][0]
        return answer["ids"], answer["confidences"]

    def check(self, file, cases, inside=None):
        wanted = self.said(MODEL)
        for number, (changes, expected) in enumerate(cases):
            with self.subTest(changes):
                model = self.copy_model(f"model{number}", MODEL)
                config = json.loads((model / file).read_text())
                for key, value in changes.items():
                    where = config[inside] if inside else config
                    where.pop(key, None)
                    if value is not None:
                        where[key] = value
                (model / file).write_text(json.dumps(config))
                if ALL in changes:
                    (model / file).unlink()
                if expected == SAME:
                    self.assertEqual(self.said(model), wanted)
                elif expected == OTHER:
                    self.assertNotEqual(self.said(model), wanted)
                else:
                    status = 2 if expected in ("image token 70", "context of 64") else 3
                    self.refused(status, "complete", model, *ASK, says=expected)

    def test_keys_above(self):
        self.check("config.json", ABOVE)

    def test_keys_of_the_text_model(self):
        self.check("config.json", TEXT, "text_config")

    def test_settings_of_the_sampler(self):
        self.check("generation_config.json", GENERATION)


if __name__ == "__main__":
    unittest.main()
