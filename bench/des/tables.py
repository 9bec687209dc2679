#!/usr/bin/env python3
"""Prints the tables of docs/results/des.md from the output of measure.py: python3 bench/des/tables.py des.json"""

import json
import sys

FAMILIES = ("topk", "naee", "mc", "des-seq", "des-vote", "des-max", "des-norm4", "des-peak")
TABLE_1 = ("vanilla", "topk:4", "naee:0.6", "mc:0.6", "des-seq:3", "des-seq:2", "des-vote:0.6", "des-vote:0.4",
           "des-max:0.375", "des-max:0.25")


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def percent(share):
    return f"{100 * share:.1f}"


def interval(line):
    low, high = line["accuracy_95"]
    return f"{percent(line['accuracy'])} [{percent(low)}, {percent(high)}]"


def chance(p):
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def changed(line):
    return f"-{line['lost']} +{line['gained']}, p {chance(line['p'])}"


def kept(line):
    """Accuracy in % of vanilla's on the same items."""
    vanilla = line["accuracy"] - (line["gained"] - line["lost"]) / line["examples"]
    return f"{100 * line['accuracy'] / vanilla:.1f} % kept"


def plain(name):
    return "mc:" + name[3:].split(",")[0] if name.startswith("mc:") else name


def lines_of(run):
    return {plain(line["select"]): line for line in run if "select" in line}


def models(runs, kind, form=""):
    """Returns [(FORM-SEED, run)] for a kind of run."""
    return sorted((key.split()[0], run) for key, run in runs.items()
                  if key.startswith(form) and key.split(maxsplit=1)[1] == kind)


def ruled(found):
    shares = [line["ruled"] for _, run in found for line in lines_of(run).values()]
    few = " That is below 90 %: these figures say little of the rules." if min(shares) < 0.9 else ""
    print(f"Tokens decided under the rule: {percent(min(shares))} % at least.{few}\n")


def table_1(runs):
    """T, and accuracy in % of vanilla's, as in the paper."""
    found = models(runs, "rules")
    if not found:
        return
    print("### Table 1\n")
    ruled(found)
    rows = []
    for rule in TABLE_1:
        row = [f"`{rule}`"]
        for _, run in found:
            line, base = lines_of(run).get(rule), lines_of(run)["vanilla"]
            row.append("" if not line else f"{line['experts']:.1f}; {100 * line['accuracy'] / base['accuracy']:.1f}"
                       + (f" ({changed(line)})" if rule != "vanilla" else ""))
        rows.append(row)
    table(["rule"] + [name for name, _ in found], rows)


def tuned(runs, kind="rules"):
    found = models(runs, kind)
    if not found:
        return
    print(f"### Fewest experts at 99 % of vanilla's accuracy, {kind}\n")
    ruled(found)
    base = [lines_of(run)["vanilla"] for _, run in found]
    rows = [["vanilla, all items"] + [f"{line['experts']:.1f} experts, {interval(line)} %" for line in base]]
    for family in FAMILIES:
        row = [f"`{family}`"]
        for _, run in found:
            best = [line["tuned"] for line in run if "tuned" in line
                    and line["tuned"]["select"].split(":")[0] == family and "weights" not in line["tuned"]["select"]]
            row.append("more than was tried" if not best else
                       f"{100 * best[0]['experts_share']:.0f} % (`{plain(best[0]['select'])}`; {kept(best[0])}, {changed(best[0])})")
        if any(rule.split(":")[0] == family for _, run in found for rule in lines_of(run)):
            rows.append(row)
    table(["rule"] + [name for name, _ in found], rows)


def sweeps(runs, form, kind="rules"):
    found = models(runs, kind, form)
    if not found:
        return
    print(f"### Sweeps, form {form}, {kind}: % right / % of vanilla's experts\n")
    ruled(found)
    rows = []
    for rule in lines_of(found[0][1]):
        rows.append([f"`{rule}`"] + [f"{interval(lines_of(run)[rule])} / {100 * lines_of(run)[rule]['experts_share']:.0f}"
                                     for _, run in found if rule in lines_of(run)])
    table(["rule"] + [name for name, _ in found], rows)


def canvases(runs):
    """Rules over whole canvases for each seed, and the same over open tokens."""
    found = [(name, lines_of(run)) for name, run in models(runs, "rules", "c")]
    if not found:
        return
    print("### Canvases\n")
    ruled([(name, run) for name, run in models(runs, "rules", "c")])
    rule_of = lambda line: f"{line['experts']:.1f} ({100 * line['experts_share']:.0f} %); {percent(line['accuracy'])} (-{line['lost']} +{line['gained']})"
    each = lambda rule, show: ", ".join(show(lines[rule]) for _, lines in found if rule in lines)
    rows = []
    for rule in found[0][1]:
        opened = rule + ",over=open"
        if rule.endswith(",over=open") or any(rule not in lines for _, lines in found):
            continue
        rows.append([f"`{rule}`"] + [rule_of(lines[rule]) for _, lines in found]
                    + [each(rule, lambda line: f"{line['passes']:.1f}"), each(rule, lambda line: f"{line['bytes'] / 1e6:.1f}"),
                       each(opened, lambda line: f"{100 * line['experts_share']:.0f}"), each(opened, lambda line: percent(line["accuracy"]))])
    table(["rule"] + [f"{name}: experts; % right (lost, gained)" for name, _ in found]
          + ["passes", "MB an answer", "over open: % of experts", "% right"], rows)


def by_task(runs, form, rules):
    for name, run in models(runs, "rules", form)[:1]:
        print(f"### By task, {name}\n")
        lines = lines_of(run)
        names = list(lines["vanilla"]["tasks"])
        table(["rule"] + names,
              [[f"`{r}`"] + [percent(lines[r]["tasks"][n]) for n in names] for r in rules if r in lines])


def batches(runs):
    for size in (1, 5, 20):
        for name, run in models(runs, f"batches of {size}"):
            print(f"### Batches of {size}, {name}\n")
            base = lines_of(run)["vanilla"]
            table(["rule", "T of a sequence", "experts of the batch", "MB an example", "of vanilla's experts", "correct %"],
                  [[f"`{rule}`", f"{line['experts']:.1f}", f"{line['batch_experts']:.1f}", f"{line['bytes'] / 1e6:.2f}",
                    f"{100 * line['batch_experts'] / base['batch_experts']:.0f} %", interval(line)]
                   for rule, line in lines_of(run).items()])


def others(runs):
    for key, run in runs.items():
        if key.split(maxsplit=1)[1] not in ("int8", "refreshes off"):
            continue
        print(f"### {key}\n")
        table(["rule", "correct %", "against vanilla", "experts", "under the rule"],
              [[f"`{rule}`", interval(line), changed(line), f"{100 * line['experts_share']:.0f} %",
                percent(line["ruled"]) + " %"] for rule, line in lines_of(run).items()])


def experts(runs):
    for key, study in runs.items():
        if not key.endswith(" experts"):
            continue
        print(f"### {key}: {percent(study['decided'])} % of the tokens were decided in these passes\n")
        layers = {}
        for line in study["coresets"]:
            layers.setdefault(line["select"], []).append(line)
        rows = []
        for rule, lines in layers.items():
            mean = lambda f: sum(map(f, lines)) / len(lines)
            row = [f"`{rule}`", f"{mean(lambda x: x['size']):.1f}"]
            for what in ("recall", "residual", "hits"):
                row += [f"{mean(lambda x: x[of][what]):.3f}" for of in ("rule", "fixed", "random")]
            rows.append(row)
        head = ["rule", "size"] + [f"{what}{of}" for what in ("recall", "residual", "hits")
                                   for of in ("", ", fixed", ", random")]
        table(head, rows)
        print("Distinct experts of N tokens, mean of the layers:")
        counts = {}
        for line in study["unique"]:
            counts.setdefault(line["tokens"], []).append(line)
        table(["N", "distinct", "independent choices"],
              [[str(n), f"{sum(x['distinct'] for x in xs) / len(xs):.1f}", f"{xs[0]['independent']:.1f}"]
               for n, xs in counts.items()])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        runs = json.load(file)
    table_1(runs)
    tuned(runs)
    for form in "ab":
        sweeps(runs, form)
        by_task(runs, form, ("vanilla", "des-vote:0.75", "des-vote:0.6", "des-max:0.375", "des-max:0.25", "des-seq:3"))
    canvases(runs)
    by_task(runs, "c", ("vanilla", "des-max:0.25", "des-seq:1"))
    for block in ("16", "64"):
        tuned(runs, f"block {block}")
    batches(runs)
    others(runs)
    experts(runs)


if __name__ == "__main__":
    main()
