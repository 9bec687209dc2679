"""Procedural tasks with one right answer each, as text of 46 characters."""

import random

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 =+:,.?-\n>"
END, MASK = 0, 1
VOCABULARY = 2 + len(CHARACTERS)
LETTERS = CHARACTERS[:26]
ID = {c: 2 + i for i, c in enumerate(CHARACTERS)}


def ids_of(text):
    return [ID[c] for c in text]


def text_of(ids):
    """Up to the end of text; what is no character shows as '#'."""
    ids = list(ids)
    ids = ids[: ids.index(END)] if END in ids else ids
    return "".join(CHARACTERS[i - 2] if i >= 2 else "#" for i in ids)


def _table():
    """128 keys of two letters, each with a value of three: what a model has to know by heart."""
    draw = random.Random(128)
    pairs = draw.sample([a + b for a in LETTERS for b in LETTERS], 128)
    return {key: "".join(draw.choices(LETTERS, k=3)) for key in pairs}


FACTS = _table()
KEYS = list(FACTS)


def word(draw, least, most):
    return "".join(draw.choices(LETTERS, k=draw.randint(least, most)))


def reverse(draw):
    w = word(draw, 4, 7)
    return f"rev {w}=", w[::-1]


def sort(draw):
    w = word(draw, 4, 6)
    return f"sort {w}=", "".join(sorted(w))


def cipher(draw):
    w, shift = word(draw, 4, 7), draw.randint(1, 5)
    return f"shift {shift} {w}=", "".join(LETTERS[(LETTERS.index(c) + shift) % 26] for c in w)


def fact(draw):
    key = draw.choice(KEYS)
    return f"fact {key}=", FACTS[key]


def digits_of(draw, count, zeros):
    return [0 if zeros and draw.random() < zeros else draw.randrange(10) for _ in range(count)]


def add(draw, zeros=0):
    """`zeros`: share of digits that are zero at least, to learn from easy ones as well."""
    a, b, c, d = digits_of(draw, 4, zeros)
    return f"add {a}{b}+{c}{d}=", f"{10 * (a + c) + b + d:03}"


def sums(draw, zeros=0):
    """Running sums of 17 digits, modulo 10: longer than a block of 32."""
    digits = digits_of(draw, 17, zeros)
    totals = [sum(digits[: i + 1]) % 10 for i in range(17)]
    return "sum " + " ".join(map(str, digits)) + "=", " ".join(map(str, totals))


SHORT = {"reverse": reverse, "sort": sort, "cipher": cipher, "fact": fact, "add": add}
TASKS = {**SHORT, "sums": sums}


def few(draw, letters, count, length):
    """A word of few letters: repeats that random words hardly have."""
    chosen = draw.sample(letters, count)
    return "".join(draw.choices(chosen, k=length))


def hard_sort(draw):
    start = draw.randrange(len(LETTERS) - 4)
    w = few(draw, LETTERS[start : start + 5], 4, 6)
    return f"sort {w}=", "".join(sorted(w))


def hard_add(draw):
    """Both columns carry, the tens only by what the units hand on in half of the items."""
    a, b = draw.randint(1, 9), draw.randint(1, 9)
    c, d = 9 - a if draw.random() < 0.5 else draw.randint(10 - a, 9), draw.randint(10 - b, 9)
    return f"add {a}{b}+{c}{d}=", f"{10 * (a + c) + b + d:03}"


def hard_sums(draw):
    digits = draw.choices(draw.sample(range(5, 10), 2), k=17)
    totals = [sum(digits[: i + 1]) % 10 for i in range(17)]
    return "sum " + " ".join(map(str, digits)) + "=", " ".join(map(str, totals))


# Of the lengths that were trained (beyond them nothing is right), but unlike what is drawn in training.
HARD = {"hard-sort": hard_sort, "hard-add": hard_add, "hard-sums": hard_sums}


def examples(count, seed, tasks=None):
    """`count` of each task, one after the other: what is held out to measure with."""
    draw = random.Random(seed)
    for _ in range(count):
        for name, make in (tasks or TASKS).items():
            prompt, answer = make(draw)
            yield {"task": name, "prompt": prompt, "answer": answer}


if __name__ == "__main__":
    import json
    import sys

    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["hard"]):
        sys.exit("Examples of each task as JSON lines: python3 training/tasks_data.py COUNT SEED [hard]")
    for example in examples(int(sys.argv[1]), int(sys.argv[2]), HARD if sys.argv[3:] else None):
        print(json.dumps(example))
