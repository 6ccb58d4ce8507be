"""README in both languages.

Every block runs, links work, both have the same structure, the recording is current.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session
from mudroom.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEDGER = (
    r"\d+ children read [\d,]+ lines \([\d.]+ kB, ~[\d,]+ tokens\); \d+ lines \([\d.]+ kB,"
    r" ~[\d,]+ tokens\) came back\. "
)

both = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def list_blocks(page: Path, kind: str) -> list[str]:
    """Return the blocks of one language."""
    return [text for language, text in BLOCK.findall(page.read_text("utf-8")) if language == kind]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Create a project with the files that the pages name."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "examples/01_one_task.py",
        "examples/02_map_over_files.py",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    (project / "tests" / "test_boots.py").write_text(
        "import pytest\n\n\ndef test_boots():\n    assert pytest\n"
    )
    return project


def copy_repository(target: Path) -> Path:
    """Copy the files of this repository, so that the commands of the pages may add some."""
    left_out = shutil.ignore_patterns(
        ".*cache", ".git", ".venv", ".hypothesis", "__pycache__", "artefacts", "build"
    )
    return Path(shutil.copytree(ROOT, target, ignore=left_out, symlinks=True))


def run(
    *command: str, place: Path, folder: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command without a key in the project, or in another folder."""
    home = place.parent / "home"
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "MUDROOM_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "etc"),
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        command,
        cwd=folder or place,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@both
def test_readme_opens_with_the_two_commands(page: Path) -> None:
    first = page.read_text("utf-8").splitlines()[:9]
    assert [line.split("#")[0].strip() for line in first if line.startswith("make")] == [
        "make demo",
        "make test",
    ]
    for target in ("demo", "test"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("page", "repository"),
    [(PAGES[0], False), (PAGES[1], False), (PAGES[0], True)],
    ids=["English", "Chinese", "this repository"],
)
def test_console_blocks_show_the_real_output(page: Path, place: Path, repository: bool) -> None:
    folder = copy_repository(place.parent / "repository") if repository else place
    (block,) = list_blocks(page, "console")
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        done = run("sh", "-c", command, place=place, folder=folder)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        pattern = ".*".join(re.escape(part.strip("\n")) for part in shown.strip("\n").split("…"))
        assert re.search(pattern, done.stdout, re.DOTALL), f"{command}\n{done.stdout}"


@both
def test_the_program_runs(page: Path, place: Path) -> None:
    done = run(sys.executable, "-", place=place, stdin=list_blocks(page, "python")[0])
    assert done.returncode == 0 and "pytest" in done.stdout and "GOAL" in done.stdout, done.stderr


@both
async def test_the_task_with_outputs_gives_values(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"name": "pytest", "files": ["pyproject.toml"]}
    model = ScriptedModel(
        lambda _: [call("self.emitvalue", **emit(*item)) for item in names.items()]
    )
    declaration, *steps = list_blocks(page, "python")[1].partition("report = ")
    scope: dict[str, Any] = {"dataclass": dataclass}
    async with Session(model=model, cwd=str(tmp_path), journal="memory") as scope["session"]:
        exec(f"{declaration}async def run():\n{textwrap.indent(''.join(steps), '    ')}", scope)
        await scope["run"]()
    assert capsys.readouterr().out == "pytest ['pyproject.toml']\n"


def emit(name: str, value: object) -> dict[str, object]:
    """Return the arguments of a call that emits a value."""
    return {"emit_variable_name": name, "emit_variable_value": value}


@both
def test_every_block_has_a_tested_kind(page: Path) -> None:
    assert [language for language, _ in BLOCK.findall(page.read_text("utf-8"))] == [
        "sh",
        "sh",
        "text",
        "console",
        "python",
        "python",
    ]


@both
def test_links_work(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8")):
        assert (ROOT / target).exists(), target


@both
def test_the_ledger_line_is_the_one_in_the_recording(page: Path) -> None:
    (shown,) = list_blocks(page, "text")
    recording = re.sub(r"<[^>]*>|\s|&#\w+;", "", (ROOT / "docs/assets/demo.svg").read_text("utf-8"))
    assert re.match(LEDGER, shown) and re.sub(r"\s", "", shown) in recording


def test_the_recording_uses_the_prompt_of_make_demo() -> None:
    prompt = re.search(r":-(.+)\}", (ROOT / "scripts" / "demo").read_text())
    recording = re.sub(r"<[^>]*>|\s", "", (ROOT / "docs/assets/demo.svg").read_text("utf-8"))
    assert prompt and re.sub(r"\s", "", prompt[1]) in recording


def test_both_languages_have_the_same_structure() -> None:
    def read_structure(page: Path) -> tuple[int, int, set[str]]:
        text = page.read_text("utf-8")
        links = {
            link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("README")
        }
        return text.count("\n## "), text.count("\n|"), links

    assert read_structure(PAGES[0]) == read_structure(PAGES[1])
