"""One child reads another one's things: numbers 93 to 97 of docs/attacks.md.

A run may know of another one only what a prompt, a message or a report says. Files of a workspace
that runs share are shared.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import AnyEvent, ToolCallFinished

from ..waiting import wait_until
from .conftest import Arena

MARK = "SIBLING-WORD"

VICTIM = """
import os, sys, tempfile
descriptor, path = tempfile.mkstemp()
os.write(descriptor, b"SIBLING-WORD in a file")
os.unlink(path)
word = b"SIBLING-" + b"WORD in memory"
open("ready", "w").close()
while not os.path.exists("done"):
    os.sched_yield()
"""

LOOK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
victim = int(sys.argv[1])
for part in ("environ", "mem", "maps"):
    try:
        with open(f"/proc/{victim}/{part}", "rb") as file:
            print(part, "READ", file.read(20_000))
    except OSError as error:
        print(part, error)
for link in ("cwd", "root", "exe"):
    try:
        print(link, "READ", os.readlink(f"/proc/{victim}/{link}"))
    except OSError as error:
        print(link, error)
try:
    for number in os.listdir(f"/proc/{victim}/fd"):
        print(number, "READ", os.readlink(f"/proc/{victim}/fd/{number}"))
except OSError as error:
    print("fd", error)
if libc.ptrace(0x4206, victim, 0, 0) == 0:
    print("READ: traced")
try:
    os.kill(victim, 0)
    print("READ: signalled")
except OSError as error:
    print(error)
print("looked")
"""
"""Looks at one process only, and attaches with PTRACE_SEIZE, which stops nothing: without a sandbox
this runs with all rights on the machine of the tests."""


@asynccontextmanager
async def working(arena: Arena) -> AsyncGenerator[int]:
    """Let a command of another run work in the same folder; yield its process id outside."""
    (arena.root / "victim.py").write_text(VICTIM)
    command = f"WORD='{MARK} in the environment' python3 -I victim.py '{MARK} in an argument'"
    task = asyncio.create_task(arena.call("bash", command=command))
    try:
        await wait_until(lambda: (arena.root / "ready").exists() or task.done())
        assert not task.done(), task.result().text
        yield _find_process(str(arena.root))
    finally:
        (arena.root / "done").touch()
        await task


def _find_process(folder: str) -> int:
    """Return the id of the victim's Python, by its arguments and its folder: no other has them."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            is_here = os.path.samefile(f"/proc/{name}/cwd", folder)
        except OSError:
            continue
        if is_here and words[0].endswith(b"python3") and b"victim.py" in words:
            return int(name)
    raise AssertionError("the other command has no process")


async def test_93_sibling_process(arena: Arena) -> None:
    """Environment, memory, open files, folders, tracing and signals of another run's command."""
    (arena.root / "look.py").write_text(LOOK)
    async with working(arena) as victim:
        text = await arena.bash(f"python3 -I look.py {victim}")
    assert text.endswith("looked")
    assert "READ" not in text, text


@pytest.mark.gap("file", "94: Landlock does not hide the list of processes")
async def test_94_sibling_command_line(arena: Arena) -> None:
    async with working(arena):
        text = await arena.bash("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo looked")
    assert "looked" in text
    assert f"{MARK} in an argument" not in text


@pytest.mark.gap("file", "95: commands in one folder share their temporary folder")
async def test_95_sibling_temporary_files(arena: Arena) -> None:
    """The home and temporary folder of an earlier command are gone."""
    await arena.bash(f"echo {MARK} > ${{TMPDIR:-/tmp}}/left; echo {MARK} > ~/left")
    text = await arena.bash("cat ${TMPDIR:-/tmp}/left ~/left; ls -la ~ ${TMPDIR:-/tmp} /dev/shm")
    assert MARK not in text
    assert not re.search(r"\bleft$", text, re.M)


# --- through a session: what the tools and commands of one child show of another one ---------


def list_guesses(home: Path, session: str) -> list[str]:
    """Return paths that a child could think of: all names without their random digits."""
    folder = home / "spills" / session
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert names
    guesses = [str(folder / re.sub(r"-[0-9a-f]{16}(?=\.)", "", str(name))) for name in names]
    transcripts = [str(folder / "transcripts"), str(folder / "transcripts" / "1")]
    return [*guesses, *transcripts, str(folder), str(folder.parent), str(home)]


async def test_96_sibling_spill_files(opened: Callable[..., Session], tmp_path: Path) -> None:
    """A child reads neither the long output of another one, nor its record or transcript."""
    long_word = f"for n in $(seq 20000); do echo {MARK} $n; done"
    looked: list[str] = []

    def script(request: Request) -> Answer:
        if request.prompt == "talk":
            return call("bash", command=long_word) if request.turn == 0 else "said"
        if request.prompt == "look":
            if request.turn:
                return "seen"
            looked[:] = list_guesses(tmp_path / "home", session.id)
            return [
                *(call("read", file_path=path) for path in looked),
                *(call("grep", pattern=MARK, path=path) for path in looked),
                *(call("glob", pattern="**/*", path=path) for path in looked),
                call("bash", command=f"cat {' '.join(looked)}; grep -r {MARK} {tmp_path}/home"),
            ]
        prompts = ["talk", "look"]
        return call("task", prompt=prompts[request.turn]) if request.turn < 2 else "done"

    seen: list[AnyEvent] = []
    async with opened(script) as session:
        session.watch(seen.append)
        assert (await session.run("go")).text == "done"
    ended = [event for event in seen if isinstance(event, ToolCallFinished)]
    spilled = next(event for event in ended if event.name == "bash")
    assert MARK in spilled.result.text and os.path.exists(spilled.result.spill)
    of_looker = [event for event in ended if event.run != spilled.run and event.name != "task"]
    assert len(of_looker) > 10
    for event in of_looker:
        own = event.result.text.replace(f"no matches in {MARK}", "")
        assert MARK not in own, event.name
        assert os.path.basename(spilled.result.spill) not in own


async def test_97_sibling_isolated_files(opened: Callable[..., Session], tmp_path: Path) -> None:
    """A child reads no file of another one's isolated workspace while both work."""
    has_looked = asyncio.Event()

    def look(request: Request) -> Answer:
        made = list((tmp_path / "home" / "isolated").rglob("own.txt"))
        assert made
        folders = [str(path.parent) for path in made] + [str(tmp_path / "home" / "isolated")]
        paths = [f"{folder}/own.txt" for folder in folders]
        return [
            *(call("read", file_path=path) for path in paths),
            *(call("grep", pattern=MARK, path=folder) for folder in folders),
            *(call("glob", pattern="**/own.txt", path=folder) for folder in folders),
            call("bash", command=f"cat {' '.join(paths)}; ls -R {tmp_path}/home | grep own"),
        ]

    async def script(request: Request) -> Answer:
        if request.prompt == "write":
            if request.turn == 0:
                return call("bash", command=f"echo {MARK} > own.txt")
            await has_looked.wait()
            return "ok"
        if request.prompt == "look":
            if request.turn == 0:
                folder = tmp_path / "home" / "isolated"
                await wait_until(lambda: list(folder.rglob("own.txt")))
                return look(request)
            has_looked.set()
            return "seen"
        if request.turn:
            return "done"
        return [call("task", prompt=prompt, isolation="isolated") for prompt in ("write", "look")]

    seen: list[AnyEvent] = []
    async with opened(script) as session:
        session.watch(seen.append)
        assert (await session.run("go")).text == "done"
    ended = [event for event in seen if isinstance(event, ToolCallFinished)]
    looks = [event for event in ended if event.run.startswith("1.1.2")]
    assert {event.name for event in looks} == {"read", "grep", "glob", "bash"}
    for event in looks:
        assert MARK not in event.result.text.replace(f"no matches in {MARK}", "")
        assert event.result.error, event.result.text


async def test_the_attack_succeeds_without_a_sandbox(tmp_path: Path) -> None:
    """On a plain shell the same look finds the other command's things."""
    with pytest.raises(AssertionError, match="READ"):
        await test_93_sibling_process(Arena(tmp_path, "off"))
