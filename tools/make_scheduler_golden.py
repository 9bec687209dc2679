#!/usr/bin/env python3
"""Writes tests/data/schedulers.json and scheduler_lists.json: what the schedulers of diffusers do.

    pip install diffusers==0.42.1 torch scipy
    python3 tools/make_scheduler_golden.py tests/data/schedulers.json tests/data/scheduler_lists.json

Each run is a class, a configuration and a number of steps. The denoiser is a formula that
tests/sample/scheduler_golden_test.cpp computes alike: tanh(input) * 0.8 + bias. Noise is a formula,
too. `x` holds the latents of two images after every pass of a run of 4 steps, else after the last.
The second file holds runs over given timesteps or sigmas, with the latents after the last pass.
"""
import json
import math
import sys

import numpy as np
import torch
import diffusers

SHAPE = (2, 3, 2, 1)
TOKENS = 2
LATENT = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
FLOW = dict(use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0)
KARRAS, EXPONENTIAL, BETA = ({f"use_{k}_sigmas": True} for k in ("karras", "exponential", "beta"))
V = dict(prediction_type="v_prediction")
THRESHOLD = dict(thresholding=True, sample_max_value=1.5, dynamic_thresholding_ratio=0.9)
ZERO_SNR = dict(rescale_betas_zero_snr=True, timestep_spacing="trailing")

CASES = {
    "DPMSolverMultistepScheduler": [
        {}, EXPONENTIAL, BETA, KARRAS, {**FLOW, "final_sigmas_type": "sigma_min"}, THRESHOLD,
        {**FLOW, "use_dynamic_shifting": True}, {**V, **ZERO_SNR},
        {"algorithm_type": "sde-dpmsolver++", **THRESHOLD}, {"solver_order": 3, **LATENT},
        {"use_lu_lambdas": True}, {"use_lu_lambdas": True, "beta_schedule": "squaredcos_cap_v2"},
        {"use_lu_lambdas": True, **V, **ZERO_SNR}, {"algorithm_type": "sde-dpmsolver++", "solver_order": 3},
        {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}, {"beta_schedule": "squaredcos_cap_v2", **KARRAS},
        {"timestep_spacing": "leading", "steps_offset": 1, "solver_type": "heun"}],
    "DPMSolverSinglestepScheduler": [
        {}, {"solver_order": 3}, {"solver_order": 3, "solver_type": "heun", **V},
        {"solver_type": "heun", "final_sigmas_type": "sigma_min", **KARRAS}, FLOW,
        {"solver_order": 1, **EXPONENTIAL}, {"lower_order_final": True, **BETA, **THRESHOLD},
        {"solver_order": 3, "final_sigmas_type": "sigma_min", **LATENT}],
    "UniPCMultistepScheduler": [
        {}, {"solver_order": 3}, {"solver_type": "bh1", "final_sigmas_type": "sigma_min", **V}, {"solver_order": 3, **FLOW},
        {"predict_x0": False, "final_sigmas_type": "sigma_min", "lower_order_final": False},
        {"disable_corrector": [0, 2]}, KARRAS, {**FLOW, **KARRAS}, {**EXPONENTIAL, **THRESHOLD},
        {**BETA, "sigma_min": 0.05, "sigma_max": 100.0}, {"solver_order": 1, **LATENT},
        {**FLOW, "use_dynamic_shifting": True}, {**FLOW, "shift_terminal": 0.1},
        {**FLOW, "use_dynamic_shifting": True, "time_shift_type": "linear"},
        {**V, **ZERO_SNR}, {**KARRAS, "final_sigmas_type": "sigma_min"}],
    "DEISMultistepScheduler": [
        {}, {"solver_order": 3}, V, KARRAS, EXPONENTIAL, BETA, FLOW, {"solver_order": 1, **LATENT},
        {"prediction_type": "sample", "lower_order_final": False}],
    "EulerDiscreteScheduler": [
        {}, {**LATENT, **V}, BETA, KARRAS, EXPONENTIAL, {"final_sigmas_type": "sigma_min"},
        {"prediction_type": "sample"}, {"interpolation_type": "log_linear"},
        {**ZERO_SNR, **V}, {"timestep_spacing": "leading", "steps_offset": 1}],
    "EulerAncestralDiscreteScheduler": [
        {}, {**LATENT, **V}, {"timestep_spacing": "leading", "steps_offset": 1}, {**ZERO_SNR, **V}],
    "HeunDiscreteScheduler": [
        {}, V, {"prediction_type": "sample"}, KARRAS, EXPONENTIAL, BETA,
        {"clip_sample": True, "timestep_spacing": "leading", "steps_offset": 1},
        {"beta_schedule": "exp", "timestep_spacing": "trailing"}],
    "LCMScheduler": [
        {}, V, {"prediction_type": "sample", "timestep_scaling": 5.0}, {"clip_sample": True},
        {"original_inference_steps": 30, **THRESHOLD}],
    "FlowMatchEulerDiscreteScheduler": [
        {"shift": 3.0}, {"shift": 3.0, **BETA}, {"shift": 3.0, **KARRAS},
        {"use_dynamic_shifting": True}, {"stochastic_sampling": True}],
    "DDIMScheduler": [{}, THRESHOLD, {"clip_sample": False, **V, **ZERO_SNR}],
    "DDPMScheduler": [{}, THRESHOLD, {"beta_schedule": "sigmoid"}, {"clip_sample": False, "variance_type": "fixed_large"}],
    "CogVideoXDDIMScheduler": [
        {}, {**V, **ZERO_SNR, "clip_sample": True, "snr_shift_scale": 1.0}],
    "CogVideoXDPMScheduler": [{}, {"beta_schedule": "squaredcos_cap_v2"}, {**V, **ZERO_SNR, "clip_sample": True}],
}

# Given timesteps or sigmas: class, configuration, list.
TIMES, WHOLE, SIGMAS = [1000, 750.5, 333.25, 100], [999, 714, 500.9, 250, 20], [1.0, 0.7, 0.35, 0.125]
LISTS = [
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}, {"timesteps": TIMES}),
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}, {"sigmas": SIGMAS}),
    ("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}, {"sigmas": SIGMAS}),
    ("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}, {"timesteps": TIMES}),
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0, **KARRAS}, {"sigmas": SIGMAS}),
    ("FlowMatchEulerDiscreteScheduler", {"shift_terminal": 0.1}, {"sigmas": SIGMAS}),
    ("FlowMatchEulerDiscreteScheduler", {"invert_sigmas": True}, {"timesteps": TIMES}),
    ("FlowMatchEulerDiscreteScheduler", {"stochastic_sampling": True}, {"sigmas": SIGMAS}),
    ("DPMSolverMultistepScheduler", {}, {"timesteps": WHOLE}),
    ("DPMSolverMultistepScheduler", {"solver_order": 3, **LATENT}, {"timesteps": WHOLE}),
    ("DPMSolverSinglestepScheduler", {}, {"timesteps": WHOLE}),
    ("DPMSolverSinglestepScheduler", {"solver_order": 3}, {"timesteps": WHOLE}),
    ("UniPCMultistepScheduler", FLOW, {"sigmas": SIGMAS}),
    ("UniPCMultistepScheduler", {**FLOW, "use_dynamic_shifting": True}, {"sigmas": SIGMAS}),
    ("UniPCMultistepScheduler", {**FLOW, "shift_terminal": 0.1}, {"sigmas": SIGMAS[1:]}),
    ("EulerDiscreteScheduler", {}, {"timesteps": [999.0, 700.25, 300, 20]}),
    ("EulerDiscreteScheduler", {"timestep_spacing": "leading"}, {"timesteps": [999.0, 700.25, 300, 20]}),
    ("EulerDiscreteScheduler", {}, {"sigmas": [14.6, 6.5, 2.25, 0.7, 0.0]}),
    ("EulerDiscreteScheduler", {**LATENT, **V, **KARRAS}, {"sigmas": [12.0, 3.5, 0.5]}),
    ("HeunDiscreteScheduler", {}, {"timesteps": [999.0, 700.25, 300, 20]}),
    ("LCMScheduler", {}, {"timesteps": [999, 759, 499, 259]}),
    ("LCMScheduler", V, {"timesteps": [900, 400.5, 3]}),
    ("DDPMScheduler", {}, {"timesteps": WHOLE}),
    ("DDPMScheduler", {"clip_sample": False, "variance_type": "fixed_large"}, {"timesteps": [800, 400, 0]}),
]


def numbers(run):
    """Returns the starting latent, or the bias or the noise of a pass."""
    i = torch.arange(12, dtype=torch.float64)
    return torch.sin(12.9 * (i + 1) + 7.3 * run).to(torch.float32).reshape(SHAPE)


def size_shift(config, tokens):
    """Computes mu like the pipelines."""
    base, most = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
    slope = (most - base) / (4096 - 256)
    return tokens * slope + (base - slope * 256)


def walk(scheduler, tokens, steps, exact=None, lists=None):
    """Timesteps, whether they are whole numbers, the scale of the first latent, and all latents; `exact` stands in
    for torch in the scheduler's steps, which then compute in f64."""
    mu = {"mu": size_shift(scheduler.config, tokens)} if scheduler.config.get("use_dynamic_shifting") else {}
    if lists:
        as_arrays = isinstance(scheduler, diffusers.UniPCMultistepScheduler)
        scheduler.set_timesteps(**{k: np.array(v) if as_arrays else v for k, v in lists.items()}, **mu)
    else:
        scheduler.set_timesteps(steps, **mu)
    if hasattr(scheduler, "set_begin_index"):  # as pipelines of flows do; else by the first timestep
        scheduler.set_begin_index(0)
    if hasattr(scheduler, "sigmas"):  # same values, with logarithms and differences in f64
        scheduler.sigmas = scheduler.sigmas.double()
    module = sys.modules[type(scheduler).__module__]
    kind = torch.float32
    if exact:
        kind, module.torch = torch.float64, exact
        scheduler.alphas_cumprod = getattr(scheduler, "alphas_cumprod", torch.zeros(1)).double()
    passes = [0]
    module.randn_tensor = lambda *args, **kwargs: numbers(100 + passes[0]).to(kind)
    scale = float(getattr(scheduler, "init_noise_sigma", 1.0))
    x = numbers(0).to(kind) * 1.5 * scale
    latents, old = [], None
    for i, t in enumerate(scheduler.timesteps):
        passes[0] = i
        seen = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        out = torch.tanh(seen) * 0.8 + 0.3 * numbers(1 + i)
        if "CogVideoXDPM" in type(scheduler).__name__:
            before = scheduler.timesteps[i - 1] if i > 0 else None
            x, old = scheduler.step(out, old, t, before, x)
        else:
            x = scheduler.step(out, t, x, return_dict=False)[0]
        latents.append(x.to(torch.float32).flatten().tolist())
    return {"timesteps": [float(np.float32(t)) for t in scheduler.timesteps],
            "whole": not torch.is_floating_point(scheduler.timesteps),
            "initial_scale": scale, "x": latents}


def listed_runs():
    for name, config, lists in LISTS:
        walked = walk(getattr(diffusers, name)(**config), TOKENS, None, lists=lists)
        yield json.dumps({"class": name, "config": config, "tokens": TOKENS, **lists, "seen": walked["timesteps"],
                          "x": [float(f"{v:.6g}") for v in walked["x"][-1]]}, separators=(",", ":"))


def main():
    runs = []
    for name, configs in CASES.items():
        for config in configs:
            for steps in (4, 8, 20):
                scheduler = getattr(diffusers, name)(**config)
                walked = walk(scheduler, TOKENS, steps)
                kept = walked["x"] if steps == 4 else walked["x"][-1:]
                assert all(math.isfinite(v) for x in kept for v in x), (name, config)
                runs.append({
                    "class": name, "config": config, "tokens": TOKENS, "steps": steps,
                    "timesteps": walked["timesteps"],
                    "x": [[float(f"{v:.6g}") for v in x] for x in kept]})
    with open(sys.argv[1], "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in runs) + "\n]\n")
    with open(sys.argv[2], "w") as out:
        out.write("[\n" + ",\n".join(listed_runs()) + "\n]\n")


if __name__ == "__main__":
    main()
