"""Start-up is a feature: what importing loads, and what it leaves for later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def list_loaded_modules(code: str) -> set[str]:
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
    assert not list_loaded_modules("import mudroom") & SLOW


def test_the_doors_of_servers_load_a_name_when_it_is_used() -> None:
    assert not list_loaded_modules("import mudroom.driving, mudroom.views") & SLOW


def test_importing_mudroom_prints_and_reads_nothing() -> None:
    program = "import sys, builtins\nbuiltins.open = None\nimport mudroom"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == ran.stderr == ""


def test_the_version_needs_click_alone() -> None:
    code = "from mudroom._cli.main import main\ntry: main(['--version'])\nexcept SystemExit: pass"
    assert list_loaded_modules(code) & SLOW <= {"click"}


def test_a_model_request_does_without_aiohttp(tmp_path: Path) -> None:
    code = f"""
import asyncio
from mudroom import Session
async def refuse(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 400 Bad Request\\r\\nContent-Length: 0\\r\\n\\r\\n")
    writer.close()
async def main():
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    environ = {{"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url}}
    async with Session(cwd={str(tmp_path)!r}, home={str(tmp_path)!r}, environ=environ) as session:
        report = await session.run("Hello.")
    assert "HTTP 400" in report.error, report.error
asyncio.run(main())
"""
    assert not list_loaded_modules(code) & {"aiohttp", "rich", "prompt_toolkit", "yaml"}


def test_a_session_does_without_screens() -> None:
    assert not list_loaded_modules("from mudroom import Session") & {
        "rich",
        "prompt_toolkit",
        "yaml",
        "pydantic",
        "click",
        "pathspec",
    }
