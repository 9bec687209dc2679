"""The loop that every training here runs."""

import copy
import math
import time

import torch


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def decayed(step_share, peak):
    """Learning rate: short warm-up, flat, cosine to zero over the last 60 %."""
    if step_share < 0.01:
        return peak * step_share / 0.01
    return peak * (1 if step_share < 0.4 else 0.5 + 0.5 * math.cos(math.pi * (step_share - 0.4) / 0.6))


def train(optimiser, loss_of, minutes, name, every=100, on_step=None, steps=None):
    """Until `minutes` have passed, or for `steps`, which any machine repeats; returns the steps made. The groups of
    the optimiser hold their peak learning rates."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    peaks = [group["lr"] for group in optimiser.param_groups]
    begin, step, mean = time.time(), 0, None
    spent = lambda: step / steps if steps else (time.time() - begin) / (60 * minutes)
    while (share := spent()) < 1:
        for group, peak in zip(optimiser.param_groups, peaks):
            group["lr"] = decayed(share, peak)
        value = loss_of()
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        mean = value.item() if mean is None else 0.98 * mean + 0.02 * value.item()
        step += 1
        if on_step:
            on_step(step, share)
        if step % every == 0:
            say(name, "step", step, f"{100 * share:.0f}%", f"loss {mean:.4f}")
    say(name, "done:", step, "steps, loss", f"{mean:.4f}")
    return step


def adamw(parameters, peak):
    return torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.98), weight_decay=0.01)


class Average:
    """An exponential average of a model's weights."""

    def __init__(self, model, longest=0.999):
        self.model, self.longest = copy.deepcopy(model), longest

    @torch.no_grad()
    def follow(self, model, step):
        keep = min(self.longest, (1 + step) / (20 + step))
        for mine, other in zip(self.model.state_dict().values(), model.state_dict().values()):
            mine.lerp_(other, 1 - keep)


class Parts:
    """A training that is done in parts: its weights, their average and what its optimiser keeps, in a file."""

    def __init__(self, file, model, optimiser, average):
        self.file, self.model, self.optimiser, self.average = file, model, optimiser, average
        self.steps = self.minutes = 0  # of the parts before
        if file.exists():
            kept = torch.load(file, weights_only=True)
            model.load_state_dict(kept["model"])
            average.model.load_state_dict(kept["average"])
            optimiser.take(kept["optimiser"])
            self.steps, self.minutes = kept["steps"], kept["minutes"]
            say("goes on after", self.steps, "steps,", self.minutes, "minutes")

    def train(self, loss_of, minutes, name, keep):
        """Calls keep(steps, minutes) twenty times, too."""
        due = 0.0

        def save(step, share):
            spent = {"steps": self.steps + step, "minutes": self.minutes + round(minutes * share)}
            new = self.file.with_suffix(".new")
            torch.save({"model": self.model.state_dict(), "average": self.average.model.state_dict(),
                        "optimiser": self.optimiser.kept(), **spent}, new)
            new.rename(self.file)
            keep(**spent)

        def on_step(step, share):
            nonlocal due
            self.average.follow(self.model, self.steps + step)
            if share >= due:
                due += 0.05
                save(step, share)

        save(train(self.optimiser, loss_of, minutes, name, every=20, on_step=on_step), 1)
