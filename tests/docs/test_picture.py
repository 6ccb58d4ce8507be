"""The pictures of the architecture and of the viewer are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.conftest import load_script

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "assets" / "architecture.svg"


def test_the_picture_is_the_one_that_its_script_draws() -> None:
    program = "import architecture_picture; print(architecture_picture.draw_picture(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == PICTURE.read_text("utf-8")


@pytest.fixture(scope="module")
def screenshot() -> ModuleType:
    return load_script("screenshot")


def test_the_picture_of_the_viewer_is_of_its_page_and_of_the_files_that_the_demo_reads(
    screenshot: ModuleType,
) -> None:
    note = screenshot.read_note(screenshot.PICTURE.read_bytes())
    assert note.get("page") == screenshot.digest_page(), "stale: run make pictures"
    files = (ROOT / "src" / "mudroom" / "testing").glob("*.py")
    lines = sum(path.read_text("utf-8").count("\n") for path in files)
    assert load_script("screencast").is_near(note["lines"], lines), "stale: run make pictures"


def test_a_comment_in_a_picture_is_read_again(screenshot: ModuleType) -> None:
    """The chunks of the file keep their order: a header first, the end last."""
    png = screenshot.PICTURE.read_bytes()
    note = screenshot.make_note("4 children read 1,234 lines and returned 5.")
    written = screenshot.add_note(b"\x89PNG" + png[-12:], note)
    assert screenshot.read_note(written) == note
    assert note["lines"] == 1234
    assert written.endswith(png[-12:])
    assert screenshot.read_note(b"\x89PNG" + png[-12:]) == {}
