"""Only one module runs git, and only with git folders that mudroom made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
RUNNER = "mudroom/_adapters/workspaces/isolated/git.py"
MAKERS = {RUNNER, "mudroom/_adapters/workspaces/isolated/git_store.py"}
"""Modules that may say that a git folder is mudroom's own: they make it."""

_STARTERS = {
    *("Popen", "run", "call", "check_call", "check_output", "run_program", "start_program"),
    *("create_subprocess_exec", "create_subprocess_shell", "system", "popen", "find_program"),
    *("execv", "execvp", "execve", "execvpe", "execl", "execlp", "posix_spawn", "posix_spawnp"),
    *("spawnv", "spawnvp", "spawnlp", "getoutput", "getstatusoutput"),
}


def list_git_calls(text: str) -> Iterator[str]:
    """Yield what a module may not have: calls that start git, and names of own git folders."""
    if not re.search(r"[\"'/]git\b|OwnGitFolder", text):
        return  # to parse the whole source takes seconds
    tree = ast.parse(text)
    commands = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _names_git(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        is_git = any(_names_git(each) or _get_name(each) in commands for each in arguments)
        if name == "OwnGitFolder" or (name in _STARTERS and is_git):
            yield name


def _get_name(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Starred) else node
    return node.id if isinstance(node, ast.Name) else ""


def _names_git(node: ast.expr) -> bool:
    """Return whether an argument is a command line of git."""
    if isinstance(node, ast.List | ast.Tuple):
        return bool(node.elts) and _names_git(node.elts[0])
    if isinstance(node, ast.BinOp):
        return _names_git(node.left)
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and _names_git(node.values[0])
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    program = node.value.split(" ")[0]
    return program == "git" or program.endswith("/git")


def test_no_other_module_runs_git() -> None:
    calls = {
        (name, call)
        for path in SOURCE.rglob("*.py")
        for call in list_git_calls(path.read_text())
        if (name := str(path.relative_to(SOURCE))) and name != RUNNER
    }
    assert {name for name, call in calls if call == "OwnGitFolder"} <= MAKERS
    assert {name for name, call in calls if call != "OwnGitFolder"} == set()


@pytest.mark.parametrize(
    "text",
    [
        'subprocess.run(["git", "status"])',
        'run(("/usr/bin/git", *arguments), check=True)',
        'asyncio.create_subprocess_exec("git", "log")',
        'os.system("git log | cat")',
        'os.execvp(file="git", args=arguments)',
        'subprocess.run(["git"] + arguments)',
        'command = ["git", "log"]\nstart_program(*command)',
        'COMMAND: tuple[str, ...] = ("git", "log")\nsubprocess.run(COMMAND)',
        'Git(OwnGitFolder("/project/.git"))',
    ],
)
def test_such_a_call_is_found(text: str) -> None:
    assert list(list_git_calls(text))


def test_a_program_that_is_only_named_git_is_no_call() -> None:
    assert not list(list_git_calls('shutil.which("git")\nrun(["gitk"])\nprint("git")'))
