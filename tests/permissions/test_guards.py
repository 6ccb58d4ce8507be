"""Each guard removed in turn lets something through: none of them is there for nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "mudroom" / "permissions"
PROBE = """
import sys
from mudroom._core.agents import Mode
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.rules import Permissions
from mudroom.tools.bash import BASH
allow = ["Bash(git diff:*)", "Bash(ls:*)", "Bash(find:*)", "Bash(sed:*)", "Bash(awk:*)", "Bash(env:*)", "Bash(rg:*)", "Bash(sort:*)",
         "Bash(cat:*)", "Bash(eval:*)", "Bash(test:*)", "Bash(python3:*)", "Bash(sh:*)"]
held = Permissions.of(allow=allow, deny=["Bash(rm:*)", "Read(.env)"])
policy = RulePolicy(held, root="/nowhere/project", home="/nowhere", tier=lambda: "off")
print(policy.decide(BASH, {"command": sys.argv[1]}, Mode.DEFAULT).verdict)
"""
GUARDS = [
    ("shell.py", 'self.doubt("it is no valid bash")', "pass", "ls $(ls"),
    ("shell.py", 'reader.doubt(f"longer than {LONGEST:,} characters")', "pass", "ls; " * 3_000),
    (
        "shell.py",
        'reader.doubt(f"holds the invisible character U+{ord(odd):04X}")',
        "pass",
        "ls \u200ba",
    ),
    ("shell.py", 'self.doubt("a here-document holds an expansion")', "pass", "cat <<E\n$x\nE"),
    (
        "shell.py",
        'self.doubt(f"the expansion {self.text(node)[:40]} is not judged")',
        "pass",
        "ls ${x@P}",
    ),
    (
        "shell.py",
        'self.doubt("a here-document ends otherwise than it seems")',
        "pass",
        "cat <<ls\na\n ls\nls\nls",
    ),
    ("shell.py", 'self.doubt("an expansion without quotes inside [ ]")', "pass", "[ $x = y ]"),
    (
        "shell.py",
        'self.doubt("backslashes inside backquotes are not judged")',
        "pass",
        "ls `ls \\\\a`",
    ),
    ("programs.py", 'return f"{name} runs what it is given"', 'return ""', "env x"),
    (
        "programs.py",
        'return "this sed command may write or run something"',
        'return ""',
        "sed -i s/a/b/ f",
    ),
    (
        "programs.py",
        'return f"{name} can run and write what its program says"',
        'return ""',
        "awk '{print > \"a\"}' f",
    ),
    (
        "programs.py",
        'return f"git {found} can run or write something"',
        'return ""',
        "git diff --output=a",
    ),
    ("programs.py", 'return f"{name} runs code that is not judged"', 'return ""', "python3 -c 1"),
    (
        "programs.py",
        'return f"{unsure} could become a flag that makes {name} run or write something"',
        'return ""',
        "find $x",
    ),
    (
        "programs.py",
        'return f"{name} {found} can run or write something" if found else ""',
        'return ""',
        "find . -delete",
    ),
    (
        "commands.py",
        'return f"it sets {name}, which may change what is run"',
        'return ""',
        "PATH=. ls",
    ),
    ("commands.py", "if not outside:", "if True:", "git diff && head /etc/passwd"),
    (
        "commands.py",
        "for text in texts(command) if depth else ():",
        "for text in ():",
        "sh -c 'true && rm x'",
    ),
    (
        "commands.py",
        "if rule := self._file_rule(command, verdict, folders):",
        "if rule := None:",
        "cat .env",
    ),
    (
        "commands.py",
        "protected_part(self._place.relative(path, folder)) for",
        '"" for',
        "ls > .git/config",
    ),
    ("commands.py", "folders.append(target", "str(target", "cd a && cat ../.env"),
    (
        "commands.py",
        'far = ["it goes to too many folders"] if',
        "far = [] if",
        "cd a; " * 2 + "".join(f"cd {n}; " for n in range(40)),
    ),
    (
        "paths.py",
        "bases, pattern, path = tuple(map(_folded, bases)), _folded(pattern), _folded(path)",
        "pass",
        "cat .ENV",
    ),
]


@pytest.mark.parametrize(
    ("file", "guard", "instead", "command"), GUARDS, ids=[guard[1][:50] for guard in GUARDS]
)
def test_without_this_guard_more_is_allowed(
    tmp_path: Path, file: str, guard: str, instead: str, command: str
) -> None:
    shutil.copytree(
        SOURCE.parent, tmp_path / "mudroom", ignore=shutil.ignore_patterns("__pycache__", "page")
    )
    whole = _verdict(tmp_path, command)
    path = tmp_path / "mudroom" / "permissions" / file
    text = path.read_text("utf-8")
    assert guard in text
    path.write_text(text.replace(guard, instead), "utf-8")
    order = ["deny", "ask", "allow"]
    assert order.index(_verdict(tmp_path, command)) > order.index(whole)


def _verdict(folder: Path, command: str) -> str:
    argv = [sys.executable, "-c", PROBE, command]
    return subprocess.run(
        argv, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True
    ).stdout.strip()
