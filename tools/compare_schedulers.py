#!/usr/bin/env python3
"""Compares random scheduler configurations with diffusers: timesteps, scales and the latents of all steps.

    pip install diffusers==0.42.1 torch scipy
    python3 tools/compare_schedulers.py build/release/tests/tessera_scheduler_walk --runs 2000

The denoiser and the noise are formulas (tools/make_scheduler_golden.py). Outcomes of a run:
  equal      the same timesteps and latents
  refused    both refuse
  not finite diffusers gives NaN or infinity, or refuses; the program's behaviour is not checked
  declined   the program refuses with a message of DECLINED, diffusers computes
  different  everything else
The status is 1 if a run is different, and 77 without diffusers, torch or scipy.
"""
import argparse
import collections
import json
import math
import random
import subprocess
import sys
import warnings

try:
    import diffusers
    import numpy as np
    import scipy.stats  # noqa: F401  diffusers refuses beta sigmas without
    import torch

    import make_scheduler_golden as golden
except ImportError as missing:
    print(f"compare_schedulers: Skipped\n{missing}; pip install diffusers torch scipy\n\n"
          "[  SKIPPED ] compare_schedulers")
    sys.exit(77)

# Messages for unsupported configurations.
DECLINED = {
    "beside another way to spread sigmas": "use_flow_sigmas with another spread",
    "'solver_p'": "another scheduler as predictor",
    "gives no finite numbers": "noise predicted where no signal is left: a division by zero that clip_sample hides",
    "dynamic thresholding in this class": "thresholding of DEIS",
    "'thresholding' is not supported with 'predict_x0'": "thresholding of estimated noise",
    "'variance_type' is": "variances of the logarithm of beta, which are no numbers before the last step",
    "'algorithm_type' is": "the algorithms of deprecated names, and the stochastic one in single steps",
    "'timestep_type' is": "continuous timesteps of v_prediction",
    "'beta_schedule' is \"laplace\"": "the laplace schedule",
}
SPREADS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas")


class Exact:
    """Replaces torch in a scheduler's module, with float64 for float32, so that steps do not round."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def round_roots():
    """Rounds square roots of float32 by IEEE 754; PyTorch's library rounds every fifth incorrectly."""
    root, power = torch.Tensor.sqrt, torch.Tensor.__pow__
    torch.Tensor.sqrt = lambda x: root(x.double()).to(x.dtype)
    torch.Tensor.__pow__ = lambda x, by: torch.Tensor.sqrt(x) if isinstance(by, float) and by == 0.5 else power(x, by)


def some(rng, chance):
    return rng.random() < chance


def betas(rng, kinds, config):
    """Adds a noise schedule."""
    config["num_train_timesteps"] = train = rng.choice([1000] * 6 + [500, 250, 100, 1234])
    config["beta_schedule"] = rng.choice(kinds)
    start, end = rng.choice([(0.0001, 0.02), (0.00085, 0.012), (0.0015, 0.0195), (0.0001, 0.03),
                             (rng.uniform(1e-5, 2e-3), rng.uniform(5e-3, 4e-2))])
    config["beta_start"], config["beta_end"] = start, end
    if some(rng, 0.05):
        config["trained_betas"] = [float(b) for b in np.linspace(start, end, train)]
    return train


def spaced(rng, config):
    config["timestep_spacing"] = rng.choice(["linspace", "leading", "trailing"])
    config["steps_offset"] = rng.choice([0, 0, 1, 2])


def spread(rng, config, chance=0.6):
    if some(rng, chance):
        config[rng.choice(SPREADS)] = True


def thresholds(rng, config):
    if some(rng, 0.15):
        config.update(thresholding=True, sample_max_value=rng.choice([1.0, 1.5, 3.0]),
                      dynamic_thresholding_ratio=rng.choice([0.9, 0.995]))


def flow(rng, config):
    config.update(use_flow_sigmas=True, prediction_type="flow_prediction",
                  flow_shift=rng.choice([1.0, 3.0, 5.0, rng.uniform(0.5, 8)]))
    if some(rng, 0.3):
        config["use_dynamic_shifting"] = True


def path(rng, lu=False, trains=("linear", "scaled_linear", "squaredcos_cap_v2"), rescales=False):
    """Adds options common to the solvers in log-SNR."""
    config = {"solver_order": rng.choice([1, 2, 2, 3])}
    betas(rng, trains, config)
    config["prediction_type"] = rng.choice(["epsilon", "epsilon", "v_prediction", "sample"])
    config["lower_order_final"] = some(rng, 0.7)
    if some(rng, 0.25):
        flow(rng, config)
        if some(rng, 0.1):
            spread(rng, config, 1)
    else:
        spread(rng, config)
        if lu and some(rng, 0.35):
            config["use_lu_lambdas"] = True
    if rescales and some(rng, 0.25):
        config["rescale_betas_zero_snr"] = True
    thresholds(rng, config)
    return config


def dpm_multistep(rng):
    config = path(rng, lu=True, rescales=True)
    spaced(rng, config)
    config["algorithm_type"] = rng.choice(["dpmsolver++"] * 4 + ["sde-dpmsolver++", "dpmsolver", "sde-dpmsolver"])
    config["solver_type"] = rng.choice(["midpoint", "heun", "midpoint", "bh2"])
    config["euler_at_final"] = some(rng, 0.2)
    config["final_sigmas_type"] = rng.choice(["zero", "zero", "sigma_min"])
    if some(rng, 0.1):
        config["lambda_min_clipped"] = rng.choice([-5.1, -4.0, -3.0])
    if some(rng, 0.05):
        config["variance_type"] = "learned_range"
    return config


def dpm_singlestep(rng):
    config = path(rng)
    config["algorithm_type"] = rng.choice(["dpmsolver++"] * 4 + ["sde-dpmsolver++", "dpmsolver", "deis"])
    config["solver_type"] = rng.choice(["midpoint", "heun", "logrho"])
    config["final_sigmas_type"] = rng.choice(["zero", "zero", "sigma_min"])
    if some(rng, 0.1):
        config["lambda_min_clipped"] = rng.choice([-5.1, -4.0, -3.0])
    return config


def unipc(rng):
    config = path(rng, rescales=True)
    spaced(rng, config)
    config["solver_type"] = rng.choice(["bh1", "bh2", "midpoint"])
    config["predict_x0"] = some(rng, 0.8)
    config["final_sigmas_type"] = rng.choice(["zero", "zero", "sigma_min"])
    if some(rng, 0.2):
        config["disable_corrector"] = rng.choice([[0], [0, 1], [2], [0, 1, 2, 3]])
    if some(rng, 0.15):
        config["sigma_min"], config["sigma_max"] = rng.choice([(0.05, 100.0), (0.02, 20.0)])
    if some(rng, 0.15):
        config["shift_terminal"] = rng.choice([0.02, 0.1])
    if some(rng, 0.2):
        config["time_shift_type"] = "linear"
    return config


def deis(rng):
    config = path(rng)
    spaced(rng, config)
    config["algorithm_type"] = rng.choice(["deis", "deis", "dpmsolver++"])
    config["solver_type"] = rng.choice(["logrho", "logrho", "midpoint", "bh2"])
    return config


def euler(rng):
    config = {"prediction_type": rng.choice(["epsilon", "v_prediction", "sample"])}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2"), config)
    spaced(rng, config)
    spread(rng, config)
    config["rescale_betas_zero_snr"] = some(rng, 0.25)
    config["final_sigmas_type"] = rng.choice(["zero", "zero", "sigma_min"])
    if some(rng, 0.15):
        config["sigma_min"], config["sigma_max"] = rng.choice([(0.05, 100.0), (0.002, 80.0), (0.02, 20.0)])
    if some(rng, 0.15):
        config["interpolation_type"] = "log_linear"
    if some(rng, 0.15):
        config["timestep_type"] = "continuous"
    return config


def euler_ancestral(rng):
    config = {"prediction_type": rng.choice(["epsilon", "v_prediction"])}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2"), config)
    spaced(rng, config)
    config["rescale_betas_zero_snr"] = some(rng, 0.25)
    return config


def heun(rng):
    config = {"prediction_type": rng.choice(["epsilon", "v_prediction", "sample"])}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2", "exp"), config)
    spaced(rng, config)
    spread(rng, config)
    if some(rng, 0.3):
        config.update(clip_sample=True, clip_sample_range=rng.choice([1.0, 2.5]))
    return config


def alphas(rng, config):
    config["prediction_type"] = rng.choice(["epsilon", "v_prediction", "sample"])
    config["rescale_betas_zero_snr"] = some(rng, 0.3)
    config["clip_sample"] = some(rng, 0.4)
    if some(rng, 0.2):
        config["clip_sample_range"] = 2.0
    spaced(rng, config)
    return config


def lcm(rng):
    config = {}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2"), config)
    alphas(rng, config)
    thresholds(rng, config)
    config["set_alpha_to_one"] = some(rng, 0.5)
    config["timestep_scaling"] = rng.choice([10.0, 5.0])
    config["original_inference_steps"] = rng.choice([50, 30, 100])
    return config


def flow_euler(rng):
    config = {"num_train_timesteps": rng.choice([1000, 1000, 500]), "shift": rng.choice([1.0, 3.0, 0.7, 12.0])}
    spread(rng, config, 0.4)
    config["use_dynamic_shifting"] = some(rng, 0.4)
    config["time_shift_type"] = rng.choice(["exponential", "exponential", "linear"])
    config["invert_sigmas"] = some(rng, 0.1)
    config["stochastic_sampling"] = some(rng, 0.2)
    if some(rng, 0.2):
        config["shift_terminal"] = rng.choice([0.02, 0.1])
    if some(rng, 0.3):
        config.update(base_shift=rng.uniform(0.3, 0.6), max_shift=rng.uniform(0.8, 3.0))
    return config


def ddim(rng):
    config = {}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2"), config)
    alphas(rng, config)
    thresholds(rng, config)
    config["set_alpha_to_one"] = some(rng, 0.5)
    return config


def ddpm(rng):
    config = {}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace"), config)
    alphas(rng, config)
    thresholds(rng, config)
    config["variance_type"] = rng.choice(["fixed_small", "fixed_small_log", "fixed_large", "fixed_large_log"])
    return config


def cogvideox(rng):
    config = {}
    betas(rng, ("linear", "scaled_linear", "squaredcos_cap_v2"), config)
    alphas(rng, config)
    config["set_alpha_to_one"] = some(rng, 0.5)
    config["snr_shift_scale"] = rng.choice([3.0, 1.0, 2.0])
    return config


CLASSES = {
    "DPMSolverMultistepScheduler": dpm_multistep,
    "DPMSolverSinglestepScheduler": dpm_singlestep,
    "UniPCMultistepScheduler": unipc,
    "DEISMultistepScheduler": deis,
    "EulerDiscreteScheduler": euler,
    "EulerAncestralDiscreteScheduler": euler_ancestral,
    "HeunDiscreteScheduler": heun,
    "LCMScheduler": lcm,
    "FlowMatchEulerDiscreteScheduler": flow_euler,
    "DDIMScheduler": ddim,
    "DDPMScheduler": ddpm,
    "CogVideoXDDIMScheduler": cogvideox,
    "CogVideoXDPMScheduler": cogvideox,
}


def random_run(rng, name):
    return {"class": name, "config": CLASSES[name](rng), "tokens": golden.TOKENS,
            "steps": rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 15, 16, 20, 25, 28, 30, 50])}


def expected(run):
    """Returns the result of diffusers; None for an error or nonfinite numbers."""
    module = sys.modules[getattr(diffusers, run["class"]).__module__]
    try:
        scheduler = getattr(diffusers, run["class"])(**run["config"])
        wanted = golden.walk(scheduler, run["tokens"], run["steps"], Exact())
        module.torch = torch
        scheduler = getattr(diffusers, run["class"])(**run["config"])
        wanted["rounded"] = golden.walk(scheduler, run["tokens"], run["steps"])["x"]
    except Exception as refused:  # noqa: BLE001  of whatever kind
        return None, f"{type(refused).__name__}: {refused}"
    finally:
        module.torch = torch
    numbers = [t for t in wanted["timesteps"]] + [v for x in wanted["x"] for v in x]
    return (wanted, "") if all(map(math.isfinite, numbers)) else (None, "not finite")


def difference(wanted, found):
    """Describes a difference; "" for none."""
    if len(wanted["timesteps"]) != len(found["timesteps"]):
        return f"{len(found['timesteps'])} timesteps for {len(wanted['timesteps'])}"
    for i, (a, b) in enumerate(zip(wanted["timesteps"], found["timesteps"])):
        if abs(a - b) > (0 if wanted["whole"] else 2e-4 + 1e-6 * abs(a)):
            return f"timestep {i} is {b}, expected {a}"
    if abs(wanted["initial_scale"] / found["initial_scale"] - 1) > 1e-5:
        return f"the first latent is scaled by {found['initial_scale']}, expected {wanted['initial_scale']}"
    for i, (a, rounded, b) in enumerate(zip(wanted["x"], wanted["rounded"], found["x"])):
        size = max(map(abs, a))
        worst, own = (max(abs(p - q) for p, q in zip(a, other)) for other in (b, rounded))
        if not worst <= 2e-4 * size + 2 * own:  # error of diffusers itself in f32
            return f"latent {i + 1} is off by {worst / size:.2g}"
    return ""


def judged(run, line):
    """Returns (outcome, text)."""
    found = json.loads(line)
    wanted, why = expected(run)
    if "refused" in found:
        if wanted is None:
            return "refused", why
        for message, what in DECLINED.items():
            if message in found["refused"]:
                return "declined", what
        return "different", f"refused: {found['refused']}"
    if wanted is None:
        return "not finite", why
    text = difference(wanted, found)
    return ("different", text) if text else ("equal", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="tessera_scheduler_walk of a build")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--raw-roots", action="store_true", help="with the square roots of this PyTorch")
    parser.add_argument("--shown", type=int, default=20, help="differences that are printed")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    diffusers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if not options.raw_roots:
        round_roots()
    rng = random.Random(options.seed)
    names = options.classes.split(",")
    runs = [random_run(rng, names[i % len(names)]) for i in range(options.runs)]
    lines = "".join(json.dumps(run) + "\n" for run in runs)
    answers = subprocess.run([options.program], input=lines, text=True, check=True, stdout=subprocess.PIPE)
    counts, shown = {name: collections.Counter() for name in names}, 0
    for run, line in zip(runs, answers.stdout.splitlines(), strict=True):
        kind, text = judged(run, line)
        counts[run["class"]][kind] += 1
        if kind == "different" and shown < options.shown:
            shown += 1
            config = {k: v for k, v in run["config"].items() if k != "trained_betas" or len(v) < 5}
            print(f"{run['class']} {json.dumps(config)} steps {run['steps']}: {text}")
    kinds = ["equal", "refused", "not finite", "declined", "different"]
    print(f"{'':34}" + "".join(f"{kind:>12}" for kind in kinds))
    for name, count in counts.items():
        print(f"{name:34}" + "".join(f"{count[kind]:12}" for kind in kinds))
    total = sum(counts.values(), collections.Counter())
    print(f"{'all ' + str(len(runs)):34}" + "".join(f"{total[kind]:12}" for kind in kinds))
    return 1 if total["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
