"""Sockets and inherited descriptors, numbers 98 to 101 of docs/attacks.md."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest

from mudroom._adapters.integrations.hook_programs.hook_set import HookProgram
from mudroom._adapters.integrations.mcp_servers.server_process import start_server_process
from mudroom._adapters.integrations.mcp_servers.spec import ServerPlace, ServerSpec
from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed
from mudroom._platform.child_programs import start_program

from ..waiting import wait_until
from .conftest import SECRET, Arena

LIST = """
import os, sys
found = {}
for name in os.listdir("/proc/self/fd"):
    try:
        found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        pass  # it listed the folder
if sys.argv[1:]:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(repr(found))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
else:
    print(found)
"""


@pytest.fixture
def leak(tmp_path: Path) -> Generator[int]:
    """Open a private file so that programs may inherit it, as a careless library does."""
    (tmp_path / "private").write_text(SECRET)
    descriptor = os.open(tmp_path / "private", os.O_RDWR)
    high = os.dup(descriptor)
    for each in (descriptor, high):
        os.set_inheritable(each, True)
    yield descriptor
    os.close(descriptor)
    os.close(high)


async def test_98_only_three_descriptors(arena: Arena, leak: int) -> None:
    """A command has its input, which is empty, and its output; nothing of mudroom's own."""
    text = await arena.python(LIST)
    found: dict[int, str] = eval(text)
    assert set(found) <= {0, 1, 2}, found
    assert found[0] == "/dev/null"
    assert found[1] == found[2] and found[1].startswith("pipe:")


async def run_hook(command: list[str], folder: Path) -> None:
    await asyncio.to_thread(HookProgram(command, str(folder), os.environ).run, b"{}", 20)


async def run_server(command: list[str], folder: Path) -> None:
    spec = ServerSpec(
        name="x", origin="test", scope="project", command=command[0], args=tuple(command[1:])
    )
    process = await start_server_process(spec, ServerPlace(str(folder), os.environ))
    await wait_until(lambda: (folder / "found").exists())
    await process.stop()


async def run_program(command: list[str], folder: Path) -> None:
    """Start it as searches and worker processes are started."""
    process = await start_program(*command, cwd=folder)
    await process.wait()


async def run_unsandboxed(command: list[str], folder: Path) -> None:
    sandbox = Unsandboxed(str(folder), os.environ)
    await sandbox.run(shlex.join(command), timeout=20, sink=lambda chunk: None)
    sandbox.close()


STARTERS: list[Callable[[list[str], Path], Awaitable[None]]] = [
    run_hook,
    run_server,
    run_program,
    run_unsandboxed,
]


@pytest.mark.parametrize("start", STARTERS)
async def test_99_programs_inherit_no_descriptor(
    tmp_path: Path, leak: int, start: Callable[[list[str], Path], Awaitable[None]]
) -> None:
    """Hooks, servers, searches, workers, and commands without a sandbox."""
    found = tmp_path / "found"
    await start([sys.executable, "-I", "-S", "-c", LIST, str(found)], tmp_path)
    descriptors: dict[int, str] = eval(found.read_text())
    assert set(descriptors) <= {0, 1, 2}, descriptors


MEET = """
import socket, tempfile
places = ["meet.sock", tempfile.mkdtemp() + "/meet.sock", "\\0meet-here"]
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    for place in places:
        try:
            with socket.socket(socket.AF_UNIX, kind) as made:
                made.bind(place)
                print("BOUND", place)
        except OSError as error:
            print(error)
try:
    pair = socket.socketpair()
    open("/proc/self/fd/%d" % pair[0].fileno(), "rb")
    print("REOPENED")
except OSError as error:
    print(error)
"""


async def test_100_no_socket_where_commands_meet(arena: Arena) -> None:
    """No command can wait on a socket: so none can hand an open file to another run's command."""
    text = await arena.python(MEET)
    assert text.count("Operation not permitted") >= 9, text
    assert "BOUND" not in text and "REOPENED" not in text
    assert not (arena.root / "meet.sock").exists()


SERVICES = {
    "SSH_AUTH_SOCK": "agent.sock",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path={}/bus",
    "DOCKER_HOST": "unix://{}/docker.sock",
    "XDG_RUNTIME_DIR": "{}",
    "GPG_AGENT_INFO": "{}/gpg:0:1",
    "WAYLAND_DISPLAY": "wayland-0",
    "DISPLAY": ":0",
    "TMUX": "{}/tmux,1,0",
    "STY": "1.pts",
    "KRB5CCNAME": "FILE:{}/ticket",
    "SUDO_ASKPASS": "{}/ask",
    "GIT_ASKPASS": "{}/ask",
    "VSCODE_IPC_HOOK_CLI": "{}/code.sock",
}


async def test_101_no_address_of_a_service(arena: Arena) -> None:
    """Agents, buses and screens of the user: a command is not even told where they are."""
    place = str(arena.outside)
    arena.environ.update({name: value.format(place) for name, value in SERVICES.items()})
    arena.sandbox = arena.make_sandbox()
    text = await arena.bash("env")
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert not names & set(SERVICES)
    assert place not in text
