#!/usr/bin/env python3
"""The tables of docs/results/des.md from what measure.py wrote: python3 bench/des/tables.py des.json"""

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


def plain(name):
    return "mc:" + name[3:].split(",")[0] if name.startswith("mc:") else name


def lines_of(run):
    return {plain(line["select"]): line for line in run if "select" in line}


def seeds(runs, form, kind):
    """[(seed, run)] of a form."""
    return sorted((key[2:].split()[0], run) for key, run in runs.items()
                  if key[0] == form and key.split(maxsplit=1)[1] == kind)


def ruled(runs):
    shares = [line["ruled"] for run in runs for line in lines_of(run).values()]
    few = " That is below 90 %: these figures say little of the rules." if min(shares) < 0.9 else ""
    print(f"Tokens decided under the rule: {percent(min(shares))} % at least.{few}\n")


def table_1(runs, form):
    found = seeds(runs, form, "rules")
    if not found:
        return
    print(f"### Table 1, form {form}\n")
    ruled([run for _, run in found])
    head = ["rule"]
    for seed, _ in found:
        head += [f"seed {seed}: T", "accuracy, % of vanilla's", "against vanilla"]
    rows = []
    for rule in TABLE_1:
        if not all(rule in lines_of(run) for _, run in found):
            continue
        row = [f"`{rule}`"]
        for _, run in found:
            line, base = lines_of(run)[rule], lines_of(run)["vanilla"]
            row += [f"{line['experts']:.1f}", f"{100 * line['accuracy'] / base['accuracy']:.1f}", changed(line)]
        rows.append(row)
    table(head, rows)


def tuned(runs, form, kind="rules"):
    found = seeds(runs, form, kind)
    if not found:
        return
    print(f"### Fewest experts at 99 % of vanilla's accuracy, form {form}, {kind}\n")
    head = ["rule"] + [f"seed {seed}" for seed, _ in found]
    base = [lines_of(run)["vanilla"] for _, run in found]
    rows = [["vanilla (all items)"] + [f"{line['experts']:.1f} experts, {interval(line)} %" for line in base]]
    for family in FAMILIES:
        row = [f"`{family}`"]
        for _, run in found:
            best = [line["tuned"] for line in run if "tuned" in line
                    and line["tuned"]["select"].split(":")[0] == family and "weights" not in line["tuned"]["select"]]
            row.append("more than was tried" if not best else
                       f"{100 * best[0]['experts_share']:.0f} % (`{plain(best[0]['select'])}`): {changed(best[0])}")
        if any(lines_of(run).keys() & {r for r in lines_of(run) if r.split(':')[0] == family} for _, run in found):
            rows.append(row)
    table(head, rows)


def sweeps(runs, form, kind="rules"):
    found = seeds(runs, form, kind)
    if not found:
        return
    print(f"### Sweeps, form {form}, {kind}: % right and % of vanilla's experts\n")
    ruled([run for _, run in found])
    rules = [rule for rule in lines_of(found[0][1])]
    rows = []
    for rule in rules:
        rows.append([f"`{rule}`"] + [f"{interval(lines_of(run)[rule])} / {100 * lines_of(run)[rule]['experts_share']:.0f} %"
                                     for _, run in found if rule in lines_of(run)])
    table(["rule"] + [f"seed {seed}" for seed, _ in found], rows)


def by_task(runs, form, rules):
    found = seeds(runs, form, "rules")
    if not found:
        return
    print(f"### By task, form {form}, seed {found[0][0]}\n")
    lines = lines_of(found[0][1])
    names = list(lines["vanilla"]["tasks"])
    table(["rule"] + names, [[f"`{r}`"] + [percent(lines[r]["tasks"][n]) for n in names] for r in rules if r in lines])


def batches(runs):
    for form in "ab":
        for kind in ("batches of 1", "batches of 5", "batches"):
            for seed, run in seeds(runs, form, kind):
                size = kind.split()[-1] if "of" in kind else "20"
                print(f"### Batches of {size}, form {form}, seed {seed}\n")
                base = lines_of(run)["vanilla"]
                table(["rule", "T of a sequence", "experts of the batch", "MB an example", "against vanilla's", "correct %"],
                      [[f"`{rule}`", f"{line['experts']:.1f}", f"{line['batch_experts']:.1f}", f"{line['bytes'] / 1e6:.2f}",
                        f"{100 * line['batch_experts'] / base['batch_experts']:.0f} % of the experts", interval(line)]
                       for rule, line in lines_of(run).items()])


def others(runs):
    for key, run in runs.items():
        if key.split(maxsplit=1)[1] not in ("f32", "int8", "refreshes off"):
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
    for form in "ab":
        table_1(runs, form)
        tuned(runs, form)
        sweeps(runs, form)
        by_task(runs, form, ("vanilla", "des-vote:0.75", "des-vote:0.6", "des-max:0.375", "des-max:0.25", "des-seq:3"))
    for block in ("8", "16", "64"):
        tuned(runs, "a", f"block {block}")
    batches(runs)
    others(runs)
    experts(runs)


if __name__ == "__main__":
    main()
