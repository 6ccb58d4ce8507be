"""README in both languages.

Every block runs, links work, both say the same, and figures and recording are of this commit.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.conftest import load_script
from tests.docs.shell_page import PageShell, make_environ

from mudroom._adapters.models.providers import choose_default_model

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"`((?:[A-Z]+_)+(?:API_KEY|BASE_URL|HOST))`")

both = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def list_blocks(page: Path, kind: str) -> list[str]:
    """Return the blocks of one language."""
    return [text for language, text in BLOCK.findall(page.read_text("utf-8")) if language == kind]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Create a small project with tests."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (project / "README.md").write_text("# Boots\n\nRun `pytest`.\n")
    (project / "tests" / "test_boots.py").write_text(
        "import pytest\n\n\ndef test_boots():\n    assert pytest\n"
    )
    return project


@pytest.fixture
def shell(place: Path) -> Iterator[PageShell]:
    with closing(PageShell(place, make_environ(place.parent / "home"))) as shell:
        yield shell


@pytest.fixture(scope="module")
def cast() -> ModuleType:
    """Return the script that writes the figures of the pages."""
    return load_script("screencast")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files of this repository, which the commands only read."""
    target = tmp_path_factory.mktemp("copy") / "repository"
    left_out = shutil.ignore_patterns(
        ".*cache", ".git", ".venv", ".hypothesis", "__pycache__", "artefacts", "build"
    )
    return Path(shutil.copytree(ROOT, target, ignore=left_out, symlinks=True))


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


@both
def test_the_commands_work_in_a_project(page: Path, shell: PageShell) -> None:
    commands = [line.partition("   ")[0] for line in list_blocks(page, "sh")[2].splitlines()]
    assert len(commands) == 5
    for command in commands:
        if command == "mudroom":
            assert "mudroom >> " in shell.type_at_prompt("mudroom >> /exit")
        elif command == "mudroom view":
            assert "http://127.0.0.1:" in shell.open_viewer()
        else:
            code, output = shell.run(command)
            assert code == 0, f"{command}: {output}"
            assert "pytest" in output or "doctor" in command, f"{command}: {output}"


@both
def test_the_first_request_works_on_this_repository(
    page: Path, repository: Path, tmp_path: Path
) -> None:
    command = list_blocks(page, "sh")[2].splitlines()[1]
    with closing(PageShell(repository, make_environ(tmp_path / "home"))) as shell:
        code, output = shell.run(command)
    assert code == 0 and "**pytest**" in output, output


def test_the_install_line_installs_this_folder() -> None:
    lines = [list_blocks(page, "sh")[1].partition("#")[0].strip() for page in PAGES]
    assert lines == ["pipx install ."] * 2
    assert (ROOT / "pyproject.toml").exists()


@both
def test_every_block_has_a_tested_kind(page: Path) -> None:
    kinds = [language for language, _ in BLOCK.findall(page.read_text("utf-8"))]
    assert kinds == ["sh", "sh", "sh"]


@both
def test_the_page_is_one_screen(page: Path) -> None:
    text = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("", page.read_text("utf-8")))
    words = len(re.findall(r"[\u4e00-\u9fff]", text)) / 1.8 + len(
        re.findall(r"[\w.'-]+", text, re.A)
    )
    assert words < 550
    assert text.count("![") == 1, "one picture"


@both
def test_the_first_variable_on_the_page_wins(page: Path) -> None:
    names = VARIABLE.findall(page.read_text("utf-8"))
    values = {name: "http://127.0.0.1:1/v1" if "KEY" not in name else "key" for name in names}
    assert len(names) == 5
    for chosen in (set_ for n in range(1, 6) for set_ in combinations(names, n)):
        environ = {name: values[name] for name in reversed(chosen)}
        assert choose_default_model(environ) == choose_default_model({chosen[0]: values[chosen[0]]})


@both
def test_links_work(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8")):
        assert (ROOT / target).exists(), target


def test_the_figures_are_those_of_make_demo_today(cast: ModuleType) -> None:
    """The demo reads files of this repository: "about" holds within a twentieth."""
    measured = cast.measure_demo(ROOT)
    for page in PAGES:
        shown = cast.find_figures(page.name, page.read_text("utf-8"))
        assert shown.keys() == measured.keys()
        wrong = {key: n for key, n in shown.items() if not cast.is_near(n, measured[key])}
        assert not wrong, f"{page.name}: {wrong} are stale, run make pictures; now: {measured}"


def test_stale_figures_are_noticed_and_written_anew(cast: ModuleType, tmp_path: Path) -> None:
    for page in PAGES:
        shutil.copy(page, tmp_path)
    measured = cast.find_figures("README.md", PAGES[0].read_text("utf-8"))
    changed = {key: 2 * figure for key, figure in measured.items()}
    assert not any(cast.is_near(measured[key], changed[key]) for key in measured)
    cast.write_figures(tmp_path, changed)
    for page in PAGES:
        text = (tmp_path / page.name).read_text("utf-8")
        assert cast.find_figures(page.name, text) == cast.round_figures(changed)
    cast.write_figures(tmp_path, measured)
    assert all((tmp_path / page.name).read_bytes() == page.read_bytes() for page in PAGES)


def test_both_languages_have_the_same_structure() -> None:
    def read_structure(page: Path) -> tuple[int, int, set[str]]:
        text = page.read_text("utf-8")
        links = {
            link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("README")
        }
        return text.count("\n## "), text.count("\n|"), links

    assert read_structure(PAGES[0]) == read_structure(PAGES[1])
