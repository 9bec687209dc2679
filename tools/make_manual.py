#!/usr/bin/env python3
"""Makes manual pages, and completions for bash, zsh and fish, from --help of every command.

tools/make_manual.py PROGRAM OUT     (OUT/man1/*.1, OUT/tessera.bash, OUT/_tessera, OUT/tessera.fish)
"""

import re
import subprocess
import sys
from pathlib import Path

ROW = re.compile(r"  (\S.*?)(?:  +| (?=\d+ done))(\S.*)$")
FLAG = re.compile(r"(?:(-\w),)?(--?[\w-]+)(?: ([^-\s][^\s]*))?")


class Command:
    """Parsed output of `PROGRAM PATH... --help`."""

    def __init__(self, program, path):
        self.path = path
        text = subprocess.run([program, *path, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        lines = text.rstrip().split("\n")
        self.summary, self.usage, self.sections = lines[0].split(": ")[-1], "", []
        for line in lines[1:]:
            if line.startswith("Usage: "):
                self.usage = line.removeprefix("Usage: ")
            elif line.startswith("  "):
                if not self.sections:
                    self.sections.append(("Arguments", []))
                self.sections[-1][1].append(line)
            else:
                title, _, rest = line.partition(":")
                self.sections.append((title, ["  " + rest.strip()] if rest.strip() else []))
        commands = [line.split()[0] for title, rows in self.sections if title == "Commands" for line in rows]
        self.commands = [Command(program, [*path, name]) for name in commands]

    def name(self, between="-"):
        return between.join(["tessera", *self.path])

    def all(self):
        return [self, *(each for command in self.commands for each in command.all())]

    def options(self):
        """Returns [(flag, value or "", description)], including --help."""
        found = []
        for title, rows in self.sections:
            if title in ("Commands", "Try", "Exit status"):
                continue
            for row in rows:
                match = ROW.match(row)
                if not match or not match[1].startswith("-"):
                    continue
                for short, long, value in FLAG.findall(match[1]):
                    found += [(flag, value, match[2]) for flag in (short, long) if flag]
        return found


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def page(command, version):
    lines = [f'.TH {command.name().upper()} 1 "" "Tessera {version}" "User Commands"', ".SH NAME",
             f"{roff(command.name())} \\- {roff(command.summary)}", ".SH SYNOPSIS", roff(command.usage)]
    for title, rows in command.sections:
        lines.append(f".SH {roff(title.upper())}")
        for row in rows:
            match = ROW.match(row)
            if title in ("Try", "Exit status"):
                lines += [roff(row.strip()), ".br"]
            elif match:
                lines += [".TP", f".B {roff(match[1])}", roff(match[2])]
            else:
                lines.append(roff(row.strip()))
    others = [each.name() for each in command.commands]
    if command.path:
        others.append("-".join(["tessera", *command.path[:-1]]))
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"{roff(name)}(1)" for name in others)]
    return "\n".join(lines) + "\n"


def bash(program):
    def case(each):
        flags = " ".join(flag for flag, _, _ in each.options())
        return f'    "{each.name(" ")}") commands="{" ".join(c.path[-1] for c in each.commands)}" flags="{flags}" ;;'

    cases = "\n".join(case(each) for each in program.all())
    paths = " ".join(f'"{each.name(" ")}"' for each in program.all() if each.path)
    return f"""# bash completion of tessera
_tessera() {{
  local commands flags path=tessera word known
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    for known in {paths}; do
      [ "$path $word" != "$known" ] || path=$known
    done
  done
  case "$path" in
{cases}
  esac
  local now=${{COMP_WORDS[COMP_CWORD]}}
  [[ $now != -* ]] || commands=$flags
  COMPREPLY=($(compgen -W "$commands" -- "$now"))
}}
complete -o default -o bashdefault -F _tessera tessera
"""


def quoted(text):
    """Escapes brackets and colons for zsh."""
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_function(command):
    name = command.name("_").replace("-", "_")
    rows = []
    for flag, value, help_text in command.options():
        action = f":{quoted(value)}:_files" if value else ""
        rows.append(f"    '{flag}[{quoted(help_text)}]{action}'")
    if not command.commands:
        return f"_{name}_options() {{\n  _arguments \\\n" + " \\\n".join([*rows, "    '*:file:_files'"]) + "\n}\n"
    named = " ".join(f"'{each.path[-1]}:{quoted(each.summary)}'" for each in command.commands)
    cases = "\n".join(f"      {each.path[-1]}) _{each.name('_').replace('-', '_')}_options ;;" for each in command.commands)
    return f"""_{name}_options() {{
  local state line
  _arguments -C \\
{(" " + chr(92) + chr(10)).join(rows)} \\
    '1:command:->command' '*::argument:->rest'
  case $state in
    command) local -a commands=({named}); _describe command commands ;;
    rest) case $line[1] in
{cases}
    esac ;;
  esac
}}
"""


def zsh(program):
    return "#compdef tessera\n" + "".join(zsh_function(each) for each in program.all()) + '_tessera_options "$@"\n'


def fish(program):
    def said(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = []
    for each in program.all():
        if each.path:
            when = f"__fish_seen_subcommand_from {each.path[-1]}"
        else:
            when = "__fish_use_subcommand"
        for command in each.commands:
            lines.append(f"complete -c tessera -f -n '{when}' -a {command.path[-1]} -d {said(command.summary)}")
        for flag, value, help_text in each.options():
            name = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"complete -c tessera -n '{when}' {name}{' -r' if value else ''} -d {said(help_text)}")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    binary, out = sys.argv[1], Path(sys.argv[2])
    program = Command(binary, [])
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout.split()[-1]
    (out / "man1").mkdir(parents=True, exist_ok=True)
    for stale in (out / "man1").glob("*.1"):
        stale.unlink()
    for command in program.all():
        (out / "man1" / f"{command.name()}.1").write_text(page(command, version))
    for name, make in (("tessera.bash", bash), ("_tessera", zsh), ("tessera.fish", fish)):
        (out / name).write_text(make(program))


if __name__ == "__main__":
    main()
