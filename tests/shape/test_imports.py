"""Start-up is a feature: what importing loads, and what it leaves for later."""

from __future__ import annotations

import subprocess
import sys

SLOW = {
    "aiohttp",
    "asyncio",
    "rich",
    "prompt_toolkit",
    "yaml",
    "jsonschema_rs",
    "pathspec",
    "pydantic",
    "sqlite3",
    "msgspec",
    "click",
}


def loaded(code: str) -> set[str]:
    """Top-level modules a fresh interpreter holds after `code`."""
    program = (
        f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted({{m.partition('.')["
        f"0] for m in set(sys.modules) - before}}))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split("\n")[-2].split())


def test_importing_mudroom_loads_nothing_slow() -> None:
    assert not loaded("import mudroom") & SLOW


def test_importing_mudroom_prints_and_reads_nothing() -> None:
    program = "import sys, builtins\nbuiltins.open = None\nimport mudroom"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == ran.stderr == ""


def test_the_version_needs_click_alone() -> None:
    code = "from mudroom.cli.main import main\ntry: main(['--version'])\nexcept SystemExit: pass"
    assert loaded(code) & SLOW <= {"click"}


def test_a_session_does_without_screens() -> None:
    assert not loaded("from mudroom import Session") & {
        "rich",
        "prompt_toolkit",
        "yaml",
        "pydantic",
        "click",
        "pathspec",
    }
