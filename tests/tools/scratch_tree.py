"""Tiny source trees on which the check tools are tried."""

import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
sys.path.insert(0, str(SOURCE / "tools"))


def run_on(tool, files, *options):
    """Runs tools/<tool> on a tree of {path: text}; (exit status, what it said)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SOURCE / "tools" / tool, "--root", folder,
                               *options],
                              capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def help_of(tool):
    done = subprocess.run([sys.executable, SOURCE / "tools" / tool, "--help"],
                          capture_output=True, text=True)
    return done.returncode, done.stdout
