"""Children change real packages of several languages at once; then the tests of the package pass.

The long form takes the folder in MUDROOM_SUBJECTS: source archives NAME.tar.gz, each with a command
in NAME.check that tests the package (`make merges FOLDER=...`). The short form makes a package.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from tests.reliability.conftest import Figure
from tests.workspaces.git_projects import hash_folder, make_repository, read_files, run_git
from tests.workspaces.test_isolated_children import get_results, run_children

from mudroom import Isolation
from mudroom._adapters.models.scripted import call

SUBJECTS = os.environ.get("MUDROOM_SUBJECTS", "")
COMMENTS = {
    ".c": "/* {} */",
    ".go": "// {}",
    ".h": "/* {} */",
    ".js": "// {}",
    ".py": "# {}",
    ".rs": "// {}",
}
CHILDREN = 8
SMALL_CHECK = "python3 -m unittest -q"
PART = """\
def get() -> str:
    return "{name}"


def twice() -> str:
    return get() * 2
"""
SMALL_TEST = """\
import importlib
import unittest


class Parts(unittest.TestCase):
    def test_parts(self) -> None:
        for name in "abcdef":
            part = importlib.import_module(f"parts.part_{name}")
            self.assertEqual(part.twice(), name * 2)
"""
SMALL = {
    **{f"parts/part_{name}.py": PART.format(name=name) for name in "abcdef"},
    "test_parts.py": SMALL_TEST,
    ".gitignore": "__pycache__\n",
}


def list_subjects() -> list[str]:
    if not SUBJECTS:
        return ["small"]
    return sorted(path.name.removesuffix(".check") for path in Path(SUBJECTS).glob("*.check"))


def unpack(name: str, folder: Path) -> tuple[Path, str]:
    """Return a repository with a package, and the command that tests it."""
    if not SUBJECTS:
        return make_repository(folder / name, dict(SMALL)), SMALL_CHECK
    with tarfile.open(Path(SUBJECTS, f"{name}.tar.gz")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (top,) = (folder / "unpacked").iterdir()
    return make_repository(top, {}), Path(SUBJECTS, f"{name}.check").read_text()


def choose_files(project: Path) -> list[str]:
    """Return the source files with the most lines."""
    tracked = run_git(project, "ls-files").splitlines()
    sources = [path for path in tracked if Path(path).suffix in COMMENTS]
    sources.sort(key=lambda path: -len((project / path).read_bytes().splitlines()))
    return sources[:CHILDREN]


def change_end(text: str, path: str, number: int) -> str:
    """Return the text of a file with one more comment at its end."""
    comment = COMMENTS[Path(path).suffix].format(f"changed by child {number}")
    return f"{text.rstrip()}\n{comment}\n"


def read_text(files: dict[str, bytes], path: str) -> str:
    """Return the text of a file; a tool that writes a file keeps its line ends."""
    return files[path].decode().replace("\r\n", "\n")


def run_check(project: Path, command: str) -> None:
    """Run the tests of a package as its user does."""
    result = subprocess.run(
        ["sh", "-c", command], cwd=project, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-2_000:]


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", list_subjects())
async def test_a_package_that_children_changed_at_once_passes_its_tests(
    tmp_path: Path, figure: Figure, name: str
) -> None:
    project, command = unpack(name, tmp_path)
    paths = choose_files(project)
    before = {path: (project / path).read_text() for path in paths}
    git = hash_folder(project / ".git")
    changes = {
        f"child {n}": (path, change_end(before[path], path, n)) for n, path in enumerate(paths)
    }
    collision = (paths[0], change_end(before[paths[0]], paths[0], len(paths)))
    children = {
        child: [[call("write", file_path=path, content=text)]]
        for child, (path, text) in (*changes.items(), ("collision", collision))
    }
    start = time.monotonic()
    _, model = await run_children(project, children, isolation=Isolation(max_returns=0))
    seconds = time.monotonic() - start
    results = get_results(model)
    assert all("in your files now" in result for result in results[1:-1])
    rivals = (changes["child 0"][1], collision[1])
    landed = ["in your files now" in result for result in (results[0], results[-1])]
    assert sorted(landed) == [False, True]
    assert f"{paths[0]} (both-modified)" in results[-1 if landed[0] else 0]
    files = read_files(project)
    assert read_text(files, paths[0]) == rivals[landed.index(True)]
    for path, text in list(changes.values())[1:]:
        assert read_text(files, path) == text
    assert hash_folder(project / ".git") == git
    run_check(project, command)
    figure(f"package {name}: {len(children)} children, 1 conflict, tests pass", f"{seconds:.1f} s")
