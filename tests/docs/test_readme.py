"""The front page in both languages: every block runs, every link leads somewhere, both say the same, and the demo is the one shown."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEDGER = r"\d+ children read [\d,]+ lines \([\d.]+ kB, ~[\d,]+ tokens\); \d+ lines \([\d.]+ kB, ~[\d,]+ tokens\) came back\. "

both = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, kind: str) -> list[str]:
    """The blocks of one language."""
    return [text for language, text in BLOCK.findall(page.read_text("utf-8")) if language == kind]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project with the files of this one that the pages name."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "examples/01_one_task.py",
        "examples/documents/on-mud.md",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    (project / "tests" / "test_boots.py").write_text(
        "import pytest\n\n\ndef test_boots():\n    assert pytest\n"
    )
    return project


def ran(
    *command: str, place: Path, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in the project, for a person without any key but those in `env`."""
    home = place.parent / "person"
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "MUDROOM_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "etc"),
        "LANG": "C.UTF-8",
        **(env or {}),
    }
    return subprocess.run(
        command, cwd=place, env=environ, input=stdin, capture_output=True, text=True, timeout=60
    )


@both
def test_it_opens_with_the_two_commands(page: Path) -> None:
    first = page.read_text("utf-8").splitlines()[:6]
    assert [line.split("#")[0].strip() for line in first if line.startswith("make")] == [
        "make demo",
        "make test",
    ]
    for target in ("demo", "test"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@both
def test_what_it_shows_of_the_terminal_is_what_is_printed(page: Path, place: Path) -> None:
    (block,) = blocks(page, "console")
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        done = ran("sh", "-c", command, place=place)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        pattern = ".*".join(re.escape(part.strip("\n")) for part in shown.strip("\n").split("…"))
        assert re.search(pattern, done.stdout, re.DOTALL), f"{command}\n{done.stdout}"


@both
def test_its_first_program_runs(page: Path, place: Path) -> None:
    done = ran(sys.executable, "-", place=place, stdin=blocks(page, "python")[0])
    assert done.returncode == 0 and "pytest" in done.stdout and "GOAL" in done.stdout, done.stderr


def extractor(asked: ServerRequest) -> ServerAnswer:
    """A model that reads the document, then emits what it found."""
    if not asked.turn:
        return [ToolCallBlock("r", "read", {"file_path": "examples/documents/on-mud.md"})]
    values = {"title": "On Mud", "author": "Ada Bootscraper"}
    return [
        ToolCallBlock(
            name, "self_emitvalue", {"emit_variable_name": name, "emit_variable_value": value}
        )
        for name, value in values.items()
    ]


@both
async def test_its_scope_runs(page: Path, place: Path) -> None:
    async with ModelServer(extractor) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        done = await asyncio.to_thread(
            ran, sys.executable, "-", place=place, stdin=blocks(page, "python")[1], env=env
        )
    assert done.stdout == "GOAL {'title': 'On Mud', 'author': 'Ada Bootscraper'}\n", done.stderr


@both
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    assert [language for language, _ in BLOCK.findall(page.read_text("utf-8"))] == [
        "sh",
        "text",
        "console",
        "python",
        "python",
    ]


@both
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8")):
        assert (ROOT / target).exists(), target


@both
def test_the_ledger_it_shows_is_the_one_of_the_recording(page: Path) -> None:
    (shown,) = blocks(page, "text")
    recording = re.sub(r"<[^>]*>|\s|&#\w+;", "", (ROOT / "docs/assets/demo.svg").read_text("utf-8"))
    assert re.match(LEDGER, shown) and re.sub(r"\s", "", shown) in recording


def test_the_recording_is_of_the_prompt_that_make_demo_gives() -> None:
    prompt = re.search(r":-(.+)\}", (ROOT / "scripts" / "demo").read_text())
    recording = re.sub(r"<[^>]*>|\s", "", (ROOT / "docs/assets/demo.svg").read_text("utf-8"))
    assert prompt and re.sub(r"\s", "", prompt[1]) in recording


def test_both_languages_have_the_same_tables_links_and_headings() -> None:
    def bones(page: Path) -> tuple[int, int, set[str]]:
        text = page.read_text("utf-8")
        links = {
            link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("README")
        }
        return text.count("\n## "), text.count("\n|"), links

    assert bones(PAGES[0]) == bones(PAGES[1])
