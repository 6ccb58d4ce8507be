"""The picture of the architecture is current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
