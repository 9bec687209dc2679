"""Formats the page of check_gpu.py: the machine, and each stage with its command and results."""

import json
import shutil
import subprocess

QUERY = {"device": "name", "driver": "driver_version", "memory": "memory.total", "power limit": "power.limit",
         "largest SM clock": "clocks.max.sm", "largest memory clock": "clocks.max.mem"}
NOW = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
VERSIONS = """import json
found = {}
for name in ("torch", "triton"):
    try:
        found[name] = __import__(name).__version__
    except Exception as error:
        found[name] = f"none ({type(error).__name__})"
try:
    import torch
    found["its CUDA"], found["its cuDNN"] = torch.version.cuda, torch.backends.cudnn.version()
except Exception:
    pass
print(json.dumps(found))"""


def said(command, seconds=60):
    """Returns standard output of a program; "" if the program cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def asked(fields):
    """Returns the answers of nvidia-smi for one GPU, field by field."""
    lines = said(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0"]).splitlines()
    values = [word.strip() for word in lines[0].split(",")] if lines else []
    return dict(zip(fields, values)) if len(values) == len(fields) else {}


def clocks():
    """Returns the current clocks, temperature and power."""
    return ", ".join(asked(NOW).values())


def machine(python):
    """Describes the machine and its software."""
    answers = asked(tuple(QUERY.values()))
    found = {name: answers.get(field, "unknown") for name, field in QUERY.items()}
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    release = [line for line in said([nvcc, "--version"]).splitlines() if "release" in line] if nvcc else []
    found["toolkit"] = release[0].split("release")[-1].strip() if release else "none"
    versions = said([python, "-c", VERSIONS], 120).strip().splitlines()
    if versions:
        found.update(json.loads(versions[-1]))
    return found


def json_lines(output):
    """Returns (the JSON objects among the lines, the other lines)."""
    objects, others = [], []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            objects.append(value)
        else:
            others.append(line)
    return objects, others


def cell(value):
    if isinstance(value, dict):
        return "; ".join(f"{name}: {what}" for name, what in value.items()).replace("|", "/")
    return str(value).replace("|", "/")


def table(rows):
    """Returns Markdown with a column for each key of any row."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)] + [[cell(row.get(c, "")) for c in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def stage_text(name, one):
    objects, others = json_lines(one["output"])
    parts = [f"## {name}: {one['status']}",
             f"`{one['command']}`\n\n{one['seconds']} s"
             + (f"; SM clock, memory clock, temperature, power before: {one['before']}" if one.get("before") else "")
             + (f"; after: {one['after']}" if one.get("after") else "")]
    if objects:
        parts.append(table(objects))
    summary = [line for line in others if "tests passed" in line or "ERROR SUMMARY" in line or "PASSED" in line
               or "FAILED" in line or "RACECHECK SUMMARY" in line]
    kept = summary[-40:] if one["status"] == "passed" else others[-60:]
    if kept:
        parts.append("```text\n" + "\n".join(kept).replace("```", "'''") + "\n```")
    return "\n\n".join(parts)


def page(results):
    """Returns the whole page."""
    parts = ["# On a GPU", "Written by `tools/check_gpu.py`. A time of PyTorch over Tessera's above 1 means that "
             "Tessera is faster; both ran in turn on one GPU, medians of several rounds after warm-up."]
    if results["machine"]:
        parts.append(table([{"what": name, "": value} for name, value in results["machine"].items()]))
    if results["stages"]:
        parts.append(table([{"stage": name, "status": one["status"], "seconds": one["seconds"]}
                            for name, one in results["stages"].items()]))
    parts += [stage_text(name, one) for name, one in results["stages"].items()]
    return "\n\n".join(parts) + "\n"
