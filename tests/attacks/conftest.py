"""Fixtures of the attacks: a workspace, and around it files that must not be reached.

Every attack uses the real tools.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session, ToolResult
from mudroom._adapters.models.scripted import Script, ScriptedModel
from mudroom._adapters.sandboxes import detect
from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom._adapters.sandboxes.linux.daemon.protocol import ResourceLimits
from mudroom._adapters.sandboxes.linux.landlock import LandlockSandbox
from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed
from mudroom._adapters.tools import make_builtin_tools
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import Sandbox
from mudroom._platform.scratch_dirs import remove_tree
from mudroom.errors import MudroomError

KEY = f"sk-planted-{secrets.token_hex(8)}"
SECRET = "PRIVATE-KEY-MATERIAL"
LIMITS = ResourceLimits(processes=200, memory=1 << 30, file_size=256 << 20, scratch=64 << 20)
FOUND = detect.run_probes(
    "" if os.environ.get("ATTACKS_HIDDEN") else detect.find_bwrap(os.environ, "/nonexistent"),
    tempfile.gettempdir(),
)


@functools.cache
def make_repository() -> Path:
    """Return a git folder with one commit of main.py; it is made once."""
    place = Path(tempfile.mkdtemp(prefix="attacks-"))
    atexit.register(shutil.rmtree, place)
    (place / "main.py").write_text("print('hello')\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(place)]
    for arguments in (
        ["init", "-q", "--template="],
        ["add", "main.py"],
        ["commit", "-qm", "first"],
    ):
        subprocess.run([*git, *arguments], check=True)
    (place / ".git" / "hooks").mkdir()
    return place / ".git"


class Arena:
    """Workspace with a repository, a folder beside it, a home folder with a key, and the tools.

    Arguments:
        base: an empty folder. tier: "full", "file" or "off".
    """

    def __init__(self, base: Path, tier: str) -> None:
        self.tier = tier
        self.base = base
        self.root = base / "proj"
        self.outside = base / "proj-secret"
        self.home = base / "person"
        for folder in (self.root, self.outside, self.home / ".ssh", base / "records"):
            folder.mkdir(parents=True)
        (self.outside / "file").write_text("untouched")
        (self.outside / "file").chmod(0o666)
        (self.outside / "key").write_text(SECRET)
        self.outside.chmod(0o777)
        (self.home / ".ssh" / "id_ed25519").write_text(SECRET)
        (self.root / "main.py").write_text("print('hello')\n")
        (self.root / ".vscode").mkdir()
        (self.root / ".vscode" / "tasks.json").write_text("{}")
        (self.root / ".mudroom.toml").write_text("max_turns = 3\n")
        shutil.copytree(make_repository(), self.root / ".git")
        self.environ = {
            **os.environ,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "PLANTED_VALUE": KEY,
            "OPENAI_API_KEY": KEY,
        }
        self.workspace = SharedWorkspace(str(self.root), [str(base / "records")])
        self.sandbox = self.make_sandbox()
        self.run_id = "1"
        self.turn = 1
        self.memo: dict[str, Any] = {}
        self._spills = 0
        self.redact = str

    def make_sandbox(
        self,
        *,
        network: bool = False,
        hidden_dirs: tuple[str, ...] = (),
        keep_root_uid: bool = bool(FOUND.no_other_user_reason),
    ) -> Sandbox:
        quarantine = str(self.base / "records" / "away")
        if self.tier == "off":
            return Unsandboxed(str(self.root), self.environ)
        if self.tier == "full":
            return BubblewrapSandbox(
                str(self.root),
                FOUND.bwrap,
                quarantine=quarantine,
                environ=self.environ,
                network=network,
                hidden_dirs=(str(self.base / "records"), *hidden_dirs),
                limits=LIMITS,
                keep_root_uid=keep_root_uid,
            )
        return LandlockSandbox(
            str(self.root),
            quarantine=quarantine,
            environ=self.environ,
            network=network,
            limits=LIMITS,
        )

    @property
    def bubblewrap(self) -> BubblewrapSandbox:
        assert isinstance(self.sandbox, BubblewrapSandbox)
        return self.sandbox

    traceparent = ""

    def spill_path(self, name: str) -> str:
        self._spills += 1
        return str(self.base / "records" / f"{self._spills}-{name}")

    async def run_detachable(
        self, title: str, work: Awaitable[ToolResult], on_detach: object
    ) -> ToolResult:
        """Wait for work that no one sends to the background."""
        return await work

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Call a built-in tool as the engine does; an error becomes an error result."""
        tool = make_builtin_tools()[name]
        try:
            return await tool.run(
                self,
                tool.parse(
                    {tool.argument_aliases.get(key, key): value for key, value in arguments.items()}
                ),
            )
        except (ValueError, MudroomError) as error:
            return ToolResult(str(error), error=True)

    async def bash(self, command: str, seconds: float = 30) -> str:
        """Run a command and return what the model reads. The next command must work."""
        result = await self.call("bash", command=command, timeout=int(seconds * 1000))
        after = await self.call("bash", command="echo alive; cat main.py")
        assert after.text == "alive\nprint('hello')", after.text
        return result.text

    async def python(self, program: str, seconds: float = 30) -> str:
        """Run a Python program as `bash` does."""
        (self.root / "attack.py").write_text(program)
        return await self.bash("python3 -I attack.py", seconds)

    def assert_untouched(self) -> None:
        assert (self.outside / "file").read_text() == "untouched"
        assert sorted(os.listdir(self.outside)) == ["file", "key"]


def list_tiers() -> list[str]:
    """Return the tiers that work here; ATTACKS_TIER restricts them to one."""
    usable_tiers = [
        tier
        for tier, lack in (("full", FOUND.no_full_reason), ("file", FOUND.no_file_reason))
        if not lack
    ]
    asked = os.environ.get("ATTACKS_TIER", "")
    return [tier for tier in usable_tiers if asked in ("", tier)]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder on the disk: sandboxes have a /dev of their own."""
    return tmp_path_factory.mktemp("test")


@pytest.fixture(params=["full", "file"])
def arena(request: pytest.FixtureRequest, tmp_path: Path) -> Arena:
    if request.param not in list_tiers():
        pytest.skip(f"no sandbox {request.param} here")
    gap = next(
        (
            mark
            for mark in request.node.iter_markers("gap")
            if mark.args[0] in (request.param, f"{request.param} as {get_user_kind()}")
        ),
        None,
    )
    if gap:
        request.applymarker(
            pytest.mark.xfail(strict=True, raises=AssertionError, reason=gap.args[1])
        )
    return Arena(tmp_path, request.param)


@pytest.fixture(params=["openat2", "steps"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Arena]:
    """Return an arena for each way to open a file; no command runs."""
    arena = Arena(tmp_path, "off")
    records = str(tmp_path / "records")
    arena.workspace = SharedWorkspace(
        str(arena.root), [records], spill_folder=records, kernel=request.param == "openat2"
    )
    yield arena
    remove_tree(tmp_path)


@pytest.fixture(params=["full", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Session]:
    """Return a function that opens sessions in one tier, with a secret outside the project."""
    if request.param not in list_tiers():
        pytest.skip(f"no sandbox {request.param} here")
    for name in ("proj", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "key").write_text(SECRET)

    def open_(script: Script, **more: Any) -> Session:
        return Session(
            model=ScriptedModel(script),
            cwd=str(tmp_path / "proj"),
            home=str(tmp_path / "home"),
            sandbox=request.param,
            **more,
        )

    return open_


@pytest.fixture
def listening(arena: Arena) -> Generator[Callable[..., socket.socket]]:
    made: list[socket.socket] = []

    def listen(family: int, kind: int, address: Any) -> socket.socket:
        server = socket.socket(family, kind)
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        server.settimeout(0.3)
        made.append(server)
        return server

    yield listen
    for server in made:
        server.close()


def get_user_kind() -> str:
    return "root" if os.geteuid() == 0 else "user"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gap(where, why): the attack is not held there; where is a tier, or 'tier as root'",
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write one line for each test, for the table of `make attacks`."""
    record = os.environ.get("ATTACKS_RECORD", "")
    if record and (report.when == "call" or report.skipped):
        outcome = "gap" if hasattr(report, "wasxfail") else report.outcome
        with open(record, "a", encoding="utf-8") as file:
            file.write(
                json.dumps({"test": report.nodeid, "who": get_user_kind(), "outcome": outcome})
                + "\n"
            )
