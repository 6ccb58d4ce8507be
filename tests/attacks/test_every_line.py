"""Every option of tier full and every step of the filter is needed: without it a survey changes.

`make attacks` checks all of them, other runs every eighth. The survey only reads: nothing here
writes kernel settings.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.sandboxes.linux.seccomp import AUDIT_ARCH, HIDDEN_CALLS, REFUSED_CALLS
from mudroom._platform.orphan_cleanup import remove_orphans
from mudroom.errors import WorkspaceError

from ..sandboxes.test_orphans import list_sleeping
from ..sandboxes.test_seccomp import NAMES, Code, build_steps, run_filter
from .conftest import Arena, get_user_kind

LONG = bool(os.environ.get("MUDROOM_LONG") or os.environ.get("ATTACKS_RECORD"))
STEP = 1 if LONG else 8
PIDFD_GETFD = 438
"""Number of the system call, the same on every processor."""


SURVEY = r"""
import ctypes, json, os
def text(path):
    return open(path).read()
status = dict(line.split(':', 1) for line in text('/proc/self/status').splitlines())
mounts = {}
for line in text('/proc/self/mountinfo').splitlines():
    before, after = line.split(' - ')
    words = before.split()
    mounts[words[4]] = [words[5].split(',')[0], after.split()[0]]
looked = {}
for path in ('/', '/etc', '/home', '/tmp', '/var', '/dev', '/run'):
    for name in os.listdir(path):
        whole = os.path.join(path, name)
        mode = oct(os.lstat(whole).st_mode)
        looked[whole] = os.readlink(whole) if os.path.islink(whole) else mode
switches = []
for folder, folders, files in os.walk('/proc'):
    if folder == '/proc':
        links = ('self', 'thread-self', 'pressure')
        folders[:] = [name for name in folders if not name.isdecimal() and name not in links]
    paths = [os.path.join(folder, name) for name in files]
    switches += [path for path in paths if not os.path.islink(path) and os.access(path, os.W_OK)]
space = os.statvfs('/tmp')
child = os.fork()
if child == 0:
    os._exit(0 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 1)
nested = os.waitpid(child, 0)[1] == 0
print('SURVEY' + json.dumps({
    'namespaces': {
        name: os.readlink(f'/proc/self/ns/{name}')
        for name in ('user', 'pid', 'ipc', 'uts', 'net', 'cgroup', 'mnt')
    },
    'nested': nested,
    'who': [os.getuid(), os.getgid(), os.uname().nodename, os.getcwd()],
    'session': os.getsid(0) != 0,
    'status': [
        status[name].strip()
        for name in ('CapEff', 'CapPrm', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')
    ],
    'environment': {
        name: value
        for name, value in os.environ.items()
        if name not in ('PWD', 'SHLVL', '_', 'LC_CTYPE')
    },
    'mounts': mounts, 'looked': looked, 'switches': switches,
    'temporary': space.f_blocks * space.f_frsize,
}))
"""
NEVER_THE_SAME = {"user", "pid", "ipc", "uts", "net", "cgroup", "mnt"}
PLUMBING = ("--json-status-fd", "--block-fd", "--as-pid-1")
"""Options by which the daemon, bwrap and the first process of the sandbox communicate; see
test_bubblewrap."""


ETC = [
    "passwd",
    "group",
    "hosts",
    "nsswitch.conf",
    "gitconfig",
    "ld.so.cache",
    "localtime",
    "timezone",
    "ssl",
    "mime.types",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "locale.alias",
    "alternatives",
    "ca-certificates",
    "pki",
    "crypto-policies",
    "java-17-openjdk",
    "java-21-openjdk",
    "fonts",
]


def list_units(argv: list[str]) -> list[tuple[int, int]]:
    starts = [n for n in range(1, argv.index("--")) if argv[n].startswith("--")]
    return list(zip(starts, [*starts[1:], argv.index("--")], strict=True))


async def survey_command(arena: Arena) -> dict[str, Any]:
    """Return what a command sees. A namespace is given as whether it is the host's."""
    (arena.root / "survey.py").write_text(SURVEY)
    output = bytearray()
    await arena.sandbox.run("python3 -I -S survey.py", timeout=60, sink=output.extend)
    seen = json.loads(output.partition(b"SURVEY")[2] or b"{}")
    if seen:
        seen["namespaces"] = {
            name: where == os.readlink(f"/proc/self/ns/{name}")
            for name, where in seen["namespaces"].items()
        }
    return seen


@pytest.fixture
def full(arena: Arena) -> Any:
    if arena.tier != "full":
        pytest.skip("these are options of tier full")
    (arena.root / "hidden").mkdir()
    arena.sandbox = arena.make_sandbox(hidden_dirs=(str(arena.root / "hidden"),))
    return arena


async def test_85_what_a_command_sees(full: Arena) -> None:
    """The survey with all options, with which the others are compared."""
    seen = await survey_command(full)
    assert seen["namespaces"] == dict.fromkeys(NEVER_THE_SAME, False)
    assert seen["who"] == [1000, 1000, "sandbox", str(full.root)]
    assert seen["session"] and not seen["nested"]
    assert seen["status"] == ["0000000000000000"] * 4 + ["1", "2"]
    assert seen["temporary"] == 64 << 20
    assert "sk-planted" not in str(seen["environment"])
    assert seen["switches"] == []
    writable = {
        path
        for path, (how, kind) in seen["mounts"].items()
        if how == "rw" and kind != "proc" and not path.startswith("/dev")
    }
    assert writable == {"/tmp", str(full.root), f"{full.root}/.git"}
    assert not {"/mnt", "/sys", "/boot", "/srv"} & seen["looked"].keys()
    assert {path for path in seen["looked"] if path.startswith("/etc/")} < {
        f"/etc/{name}" for name in ETC
    }


async def list_unnoticed(
    arena: Arena, lines: list[list[str]], instead: Callable[[list[str]], list[str]]
) -> list[list[str]]:
    """Return the options whose replacement does not change the survey."""
    build = arena.bubblewrap.build_argv
    unseen_lines: list[list[str]] = []
    whole = await survey_command(arena)
    for line in lines:

        def weaker(command: str, line: list[str] = line) -> list[str]:
            argv = build(command)
            at = next((n for n, _ in enumerate(argv) if argv[n : n + len(line)] == line), len(argv))
            return argv[:at] + instead(argv[at : at + len(line)]) + argv[at + len(line) :]

        arena.bubblewrap.build_argv = weaker
        try:
            if await survey_command(arena) == whole:
                unseen_lines.append(line)
        except WorkspaceError:
            pass  # no command runs without it
    arena.bubblewrap.build_argv = build
    return unseen_lines


async def test_85b_every_line_of_the_profile_is_needed(full: Arena) -> None:
    """An option that another makes redundant is checked again without the other."""
    argv = full.bubblewrap.build_argv("true")
    lines = [
        argv[start:end]
        for start, end in list_units(argv)
        if argv[start] not in (*PLUMBING, "--die-with-parent")
        # Python sets this variable itself where no other one chooses a locale.
        and argv[start:end] != ["--setenv", "LC_CTYPE", "C.UTF-8"]
    ]
    assert len(lines) > 40
    left = await list_unnoticed(full, lines[::STEP], lambda _: [])
    if (
        get_user_kind() == "user"
    ):  # bubblewrap itself leaves no capability to whom it was not started by root
        left = [line for line in left if line[0] != "--cap-drop"]
    else:
        full.sandbox = full.make_sandbox(keep_root_uid=True)
        left = await list_unnoticed(full, left, lambda _: [])
    build = full.bubblewrap.build_argv

    def unfiltered(command: str) -> list[str]:
        argv = build(command)
        at = argv.index("--seccomp")
        return argv[:at] + argv[at + 2 :]

    full.bubblewrap.build_argv = unfiltered
    assert await list_unnoticed(full, left, lambda _: []) == []


async def test_85c_every_read_only_mount_is_needed(full: Arena) -> None:
    argv = full.bubblewrap.build_argv("true")
    lines = [
        argv[start:end] for start, end in list_units(argv) if argv[start].startswith("--ro-bind")
    ]
    assert await list_unnoticed(full, lines[::STEP], lambda line: ["--bind", *line[1:]]) == []


@pytest.mark.parametrize("whole", [True, False])
async def test_85d_commands_die_with_the_daemon(full: Arena, whole: bool) -> None:
    """With --die-with-parent they die with a killed daemon; without it they continue.

    The orphan clean-up would also kill them. So the lock of the daemon's scratch folder is kept:
    for every clean-up on this machine the folder is in use.
    """
    build, name = full.bubblewrap.build_argv, f"73.{secrets.randbelow(10**12):012}"

    def built(command: str) -> list[str]:
        return [word for word in build(command) if whole or word != "--die-with-parent"]

    full.bubblewrap.build_argv = built
    running = asyncio.create_task(
        full.sandbox.run(f"sleep {name}", timeout=60, sink=lambda _: None)
    )
    while not (matches := list_sleeping(name)):
        await asyncio.sleep(0.02)
    lock = copy_scratch_lock(full.bubblewrap.daemon_pid)
    os.kill(full.bubblewrap.daemon_pid, signal.SIGKILL)
    remove_orphans("/tmp")
    left = are_still_sleeping(name, 60 if whole else 0.2)
    os.close(lock)
    await asyncio.wait([running])
    for pid in matches:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert left is not whole


def copy_scratch_lock(pid: int) -> int:
    """Return a copy of the descriptor by which a process locks its scratch folder.

    Skips the test on a machine that does not allow such copies.
    """
    folder = Path(f"/proc/{pid}/fd")
    names = [link.name for link in folder.iterdir() if f"/mudroom-{pid}-" in os.readlink(link)]
    process = os.pidfd_open(pid)
    copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, int(names[0]), 0)
    os.close(process)
    if copy < 0:
        pytest.skip(f"descriptors cannot be copied here: {os.strerror(ctypes.get_errno())}")
    return copy


def are_still_sleeping(name: str, seconds: float) -> bool:
    """Return whether they still sleep after so many seconds, more when the machine is busy.

    No orphan clean-up runs meanwhile.
    """
    for _ in range(round(seconds / 0.02)):
        if not list_sleeping(name):
            return False
        time.sleep(0.02)
    return bool(list_sleeping(name))


# --- the filter ---------------------------------------------------------------------------

X86 = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}


def list_results(code: Code, machine: str) -> list[int]:
    """Return the results for every call that the filter knows, and some others."""
    column, arch = (0, AUDIT_ARCH[machine]) if machine == "x86_64" else (1, AUDIT_ARCH[machine])
    numbers = [
        pair[column] for pair in (*REFUSED_CALLS.values(), *HIDDEN_CALLS.values(), *NAMES.values())
    ] + ([*X86.values()] if column == 0 else [])
    calls = [(number, arch, 0, 0) for number in numbers] + [
        (0, 0x40000003, 0, 0),
        (0x40000000 | 41, arch, 2, 0),
    ]
    for name in ("socket", "socketpair"):
        calls += [(NAMES[name][column], arch, family, 0) for family in range(46)]
    for name in ("clone", "unshare"):
        calls += [(NAMES[name][column], arch, 1 << bit, 0) for bit in range(32)]
    calls += [
        (NAMES[name][column], arch, 16, request)
        for name in ("ioctl", "read", "unshare")
        for request in (0x5401, 0x5412, 0x541C)
    ]
    return [run_filter(code, *call) for call in calls]


@pytest.mark.parametrize("internet", [True, False])
@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_85e_every_line_of_the_filter_is_needed(machine: str, internet: bool) -> None:
    """Without a step, or with a jump that never jumps, the result of some call changes."""
    code = build_steps(machine, allow_internet=internet)
    whole: Any = list_results(code, machine)
    useless: list[int] = []
    for n, (operation, true, false, value) in enumerate(code):
        gone = code[:n] + code[n + 1 :]
        if list_results(gone, machine) == whole:
            useless.append(n)
        if (
            operation in (0x15, 0x35, 0x45)
            and list_results([*code[:n], (operation, false, false, value), *code[n + 1 :]], machine)
            == whole
        ):
            useless.append(n)
        assert operation != 0x06 or (true, false) == (0, 0)
    assert useless == []
