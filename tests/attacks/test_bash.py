"""Attacks by commands, numbers 1 to 42 and 77 to 84 of docs/attacks.md.

Every refusal must be readable for the model.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom.errors import WorkspaceError

from ..waiting import find_processes, wait_until
from .conftest import KEY, LIMITS, Arena

Listen = Callable[..., socket.socket]
REFUSED = re.compile(
    r"Read-only file system|Permission denied|Operation not permitted|No such file|Function not "
    r"implemented|not permitted|refused|unreachable"
    r"|cross-device|busy|No such device|Errno 30|Errno 13|Errno 1\]|Errno 2\]|Errno 38|Address "
    r"family|cannot access|sandbox"
)


def assert_refused(text: str) -> None:
    assert REFUSED.search(text), text


def list_names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# --- files outside ---------------------------------------------------------


async def test_01_write_outside(arena: Arena) -> None:
    assert_refused(await arena.bash(f"echo x > {arena.outside}/file"))
    arena.assert_untouched()


async def test_01b_append_truncate_delete_outside(arena: Arena) -> None:
    text = await arena.bash(
        f"cd {arena.outside} 2>/dev/null; f={arena.outside}/file; echo x >> $f; truncate -s 0 "
        f"$f; rm -f $f; mv $f $f.x"
    )
    assert_refused(text)
    arena.assert_untouched()


@pytest.mark.gap("file", "80: Landlock does not hold modes, times and extended attributes")
async def test_80_metadata_outside(arena: Arena) -> None:
    assert_refused(
        await arena.bash(
            f"chmod 0640 {arena.outside}/file; touch -d 2001-01-01 {arena.outside}/file"
        )
    )
    assert (arena.outside / "file").stat().st_mode & 0o777 == 0o666
    assert (arena.outside / "file").stat().st_mtime > 1e9


async def test_02_symlink_out(arena: Arena) -> None:
    assert_refused(await arena.bash(f"ln -s {arena.outside}/file link; echo x > link"))
    arena.assert_untouched()


async def test_03_dir_symlink_out(arena: Arena) -> None:
    assert_refused(
        await arena.bash(f"ln -s {arena.outside} dir; echo x > dir/new; mkdir dir/folder")
    )
    arena.assert_untouched()


async def test_04_hardlink_out(arena: Arena) -> None:
    assert_refused(await arena.bash(f"ln {arena.outside}/file hard && echo x > hard"))
    arena.assert_untouched()


async def test_05_ssh_key(arena: Arena) -> None:
    searched = arena.home if arena.tier == "off" else "/"
    # The key is below none of these, and to search them takes long.
    without = r"\( -path /usr -o -path /proc -o -path /opt \) -prune -o"
    text = await arena.bash(
        f"cat {arena.home}/.ssh/id_ed25519; cat ~/.ssh/*; find {searched} "
        f"{without} -name id_ed25519 -exec cat {{}} + 2>/dev/null"
    )
    assert "PRIVATE-KEY" not in text
    assert_refused(text)


async def test_06_shadow(arena: Arena) -> None:
    text = await arena.bash("cat /etc/shadow /etc/gshadow /etc/sudoers; cat /etc/ssh/*_key")
    assert "root:" not in text and "PRIVATE KEY" not in text
    assert_refused(text)


async def test_06b_accounts_of_the_machine(arena: Arena) -> None:
    """Tier file lets programs look up user names."""
    if arena.tier == "file":
        pytest.skip("the list of names, without passwords, may be read there")
    assert set(re.findall(r"^(\w+):", await arena.bash("cat /etc/passwd"), re.M)) == {
        "root",
        "user",
        "nobody",
    }


async def test_07_env_key(arena: Arena) -> None:
    text = await arena.bash(
        "env; cat /proc/self/environ /proc/1/environ; cat /proc/$PPID/environ; strings "
        "/proc/*/environ"
    )
    assert KEY not in text
    assert "OPENAI" not in text
    assert KEY not in await arena.bash("cat /proc/*/cmdline")


async def test_08_parent_memory(arena: Arena) -> None:
    """The harness's memory holds keys: it must be out of reach, also by process id."""
    text = await arena.python(
        f"import os\nfor pid in ({os.getpid()}, os.getppid(), 1):\n"
        "    for name in ('mem', 'environ', 'maps', 'fd', 'root', 'cwd'):\n"
        "        try:\n            p = f'/proc/{pid}/{name}'\n"
        "            print(pid, name, 'READ', os.readlink(p + '/0' * (name == 'fd'))) if name in "
        "('fd', 'root', 'cwd') else print(pid, name, 'READ', open(p, 'rb').read(10))\n"
        "        except OSError as error: print(pid, name, error)\n"
    )
    assert not re.search(rf"^{os.getpid()} \w+ READ", text, re.M), text
    assert KEY not in text
    assert_refused(text)


async def test_09_kill_host(arena: Arena) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        text = await arena.bash(f"kill -9 {victim.pid}; kill -9 {os.getpid()}; echo tried")
        assert victim.poll() is None
        assert re.search(r"No such process|not permitted", text)
    finally:
        victim.kill()
        victim.wait()


async def test_09b_trace_host(arena: Arena) -> None:
    """Neither by ptrace nor by writing another process's memory."""
    victim = subprocess.Popen(["sleep", "60"])
    try:
        text = await arena.python(
            "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            f"for what in (16, 0x4206):\n    print(libc.ptrace(what, {victim.pid}, 0, 0), "
            f"os.strerror(ctypes.get_errno()))\n"
        )
        assert text.count("-1 ") == 2
        assert re.search(r"No such process|not permitted", text)
    finally:
        victim.kill()
        victim.wait()


# --- network and other programs --------------------------------------------


async def test_10_tcp_loopback(arena: Arena, listening: Listen) -> None:
    server = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    assert_refused(
        await arena.bash(f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo data >&3")
    )
    with pytest.raises(TimeoutError):
        server.accept()


async def test_10b_tcp_ipv6(arena: Arena, listening: Listen) -> None:
    server = listening(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
    text = await arena.python(
        f"import socket\nsocket.create_connection(('::1', {server.getsockname()[1]}), "
        f"1).send(b'data')\n"
    )
    assert_refused(text)
    with pytest.raises(TimeoutError):
        server.accept()


async def test_11_udp_dns(arena: Arena, listening: Listen) -> None:
    server = listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
    text = await arena.bash(
        f"exec 3<>/dev/udp/127.0.0.1/{server.getsockname()[1]}; echo secret >&3; getent hosts "
        f"secret.example.com; echo done"
    )
    assert "done" in text
    with pytest.raises(TimeoutError):
        server.recv(100)


async def test_12_abstract_socket(arena: Arena, listening: Listen) -> None:
    server = listening(socket.AF_UNIX, socket.SOCK_STREAM, f"\0attack-{os.getpid()}")
    assert_refused(
        await arena.python(
            "import socket\ns = socket.socket(socket.AF_UNIX)\n"
            f"s.connect('\\0attack-{os.getpid()}')\n"
        )
    )
    with pytest.raises(TimeoutError):
        server.accept()


async def test_13_session_bus(arena: Arena) -> None:
    """Sockets of services are not visible and cannot be reached."""
    text = await arena.bash(
        "ls /run/dbus /run/user /var/run/docker.sock /run/systemd /tmp/.X11-unix /run/containerd "
        "2>&1; echo looked"
    )
    assert "looked" in text
    assert_refused(text)
    assert_refused(
        await arena.python(
            "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')\n"
        )
    )


async def test_14_socket_inside(
    arena: Arena, listening: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(arena.root)
    server = listening(socket.AF_UNIX, socket.SOCK_STREAM, "service.sock")
    assert_refused(
        await arena.python(
            "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('service.sock')\n"
        )
    )
    with pytest.raises(TimeoutError):
        server.accept()


# --- protected names -------------------------------------------------------


async def test_15_git_hook(arena: Arena) -> None:
    assert_refused(
        await arena.bash(
            "printf '#!/bin/sh\\ntouch pwned\\n' > .git/hooks/pre-commit; chmod +x "
            ".git/hooks/pre-commit"
        )
    )
    assert os.listdir(arena.root / ".git" / "hooks") == []


async def test_16_git_config(arena: Arena) -> None:
    before = (arena.root / ".git" / "config").read_text()
    assert_refused(
        await arena.bash(
            "git config core.fsmonitor 'touch pwned'; echo '[core] pager = x' >> .git/config"
        )
    )
    assert (arena.root / ".git" / "config").read_text() == before


async def test_16b_git_config_replaced_by_rename(arena: Arena) -> None:
    before = (arena.root / ".git" / "config").read_text()
    assert_refused(
        await arena.bash(
            "echo '[core]' > evil; mv -f evil .git/config; cp evil .git/config; ln -sf ../evil "
            ".git/config; rm -f .git/config"
        )
    )
    assert (arena.root / ".git" / "config").read_text() == before
    assert not (arena.root / ".git" / "config").is_symlink()


async def test_17_git_rename(arena: Arena) -> None:
    assert_refused(
        await arena.bash("mv .git away; mkdir -p .git/hooks; echo x > .git/hooks/post-checkout")
    )
    assert not (arena.root / ".git" / "hooks" / "post-checkout").exists()
    assert subprocess.run(
        ["git", "-C", arena.root, "log", "--oneline"], capture_output=True, check=True
    ).stdout


async def test_17b_git_commondir(arena: Arena) -> None:
    """A file that makes git read its settings from elsewhere."""
    await arena.bash(
        "mkdir -p evil/hooks; cp -r .git/objects .git/refs .git/HEAD evil/; echo '[core] "
        "fsmonitor = x' > evil/config; echo ../evil > .git/commondir"
    )
    assert not (arena.root / ".git" / "commondir").exists()


async def test_17c_the_folder_above_the_workspace(arena: Arena) -> None:
    """The workspace itself is renamed, or files are planted beside it."""
    assert_refused(await arena.bash(f"cd ..; mv proj moved; mkdir evil; ls {arena.base}"))
    assert list_names(arena.base) == ["person", "proj", "proj-secret", "records"]


async def test_18_agent_settings(arena: Arena) -> None:
    assert_refused(
        await arena.bash(
            "echo 'max_turns = 99' > .mudroom.toml; echo '{\"x\": 1}' > .vscode/tasks.json; rm "
            "-rf .vscode; echo x > .vscode/new.json"
        )
    )
    assert (arena.root / ".mudroom.toml").read_text() == "max_turns = 3\n"
    assert os.listdir(arena.root / ".vscode") == ["tasks.json"]
    assert (arena.root / ".vscode" / "tasks.json").read_text() == "{}"


async def test_19_missing_config(arena: Arena) -> None:
    names = (
        *(".envrc", ".mcp.json", ".claude/settings.json", ".agents/a.md", ".idea/x", ".bashrc"),
        *(".mudroom/agents/a.md", ".gitmodules", ".husky/x"),
    )
    before = list_names(arena.root)
    for name in names:
        text = await arena.bash(f"mkdir -p $(dirname {name}); echo evil > {name}")
        assert_refused(text)
        assert "Ask the user" in text
        assert list_names(arena.root) == before, name


@pytest.mark.parametrize(
    "how",
    [
        "echo x > t; mv t .envrc",
        "echo x > t; ln t .envrc",
        "ln -s /tmp/x .envrc",
        "mkfifo .envrc",
        "echo x > .EnvRC",
    ],
)
async def test_19b_missing_config_by_other_ways(arena: Arena, how: str) -> None:
    assert_refused(await arena.bash(how))
    assert ".envrc" not in {name.lower() for name in list_names(arena.root)}


async def test_19c_files_made_by_the_user_between_commands_stay(arena: Arena) -> None:
    await arena.bash("true")
    (arena.root / ".envrc").write_text("mine")
    (arena.root / ".git" / "config").write_text(
        (arena.root / ".git" / "config").read_text() + "[x]\n\ty = 1\n"
    )
    assert "sandbox" not in await arena.bash("true")
    assert (arena.root / ".envrc").read_text() == "mine"
    assert "y = 1" in (arena.root / ".git" / "config").read_text()


async def test_19d_planted_files_are_moved_to_quarantine(arena: Arena) -> None:
    await arena.bash("echo evil > .envrc")
    assert [p.read_text() for p in (arena.base / "records" / "away").iterdir()] == ["evil\n"]


async def test_20_dangling_settings_link(arena: Arena) -> None:
    """Neither a protected link nor its target can be changed."""
    (arena.root / ".envrc").symlink_to("real-envrc")
    (arena.root / "real-envrc").write_text("mine")
    await arena.bash("true")
    await arena.bash("rm .envrc; echo evil > .envrc")
    assert os.readlink(arena.root / ".envrc") == "real-envrc"


async def test_21_nested_repo(arena: Arena) -> None:
    """A repository in a subfolder is allowed; mudroom never runs git, so its hooks do not run."""
    text = await arena.bash(
        "mkdir sub; cd sub; git init -q; echo touch pwned > .git/hooks/post-commit; ls "
        ".git/hooks/post-commit"
    )
    assert ".git/hooks/post-commit" in text


async def test_21b_ordinary_work_is_possible(arena: Arena) -> None:
    """An agent can commit, branch, stash and build."""
    text = await arena.bash(
        "echo x > new.py && git add new.py && git commit -qm second && git checkout -qb topic && "
        "git stash list && git log --oneline | wc -l"
        " && mkdir -p build/a && touch build/a/b && rm -r build && mv new.py old.py && python3 "
        "-c 'import json, ssl, sqlite3; print(1)'"
    )
    assert text.split() == ["2", "1"], text


async def test_21c_commits_have_the_users_name(arena: Arena) -> None:
    """Only name and email of the user's git settings are visible."""
    (arena.home / ".gitconfig").write_text(
        '[core]\n\tpager = evil\n[user]\n\tname = "Ada L"\n\temail = '
        "ada@example.org\n[alias]\n\tx = !evil\n"
    )
    arena.sandbox = arena.make_sandbox()
    text = await arena.bash(
        "echo x > n && git add n && git commit -qm n && git log -1 --format='%an <%ae>'; git "
        "config --get alias.x; git config core.pager; true"
    )
    assert text == "Ada L <ada@example.org>"


async def test_84_a_granted_network_is_there(arena: Arena, listening: Listen) -> None:
    """Other socket families stay closed."""
    server = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    arena.sandbox = arena.make_sandbox(network=True)
    text = await arena.bash(f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo through")
    assert text == "through"
    server.accept()[0].close()
    assert_refused(await arena.python("import socket\nsocket.socket(socket.AF_UNIX)\n"))
    assert_refused(await arena.bash(f"echo x > {arena.outside}/file"))
    arena.assert_untouched()


# --- privileges ------------------------------------------------------------


async def test_22_remount(arena: Arena) -> None:
    text = await arena.bash(
        "mount -o remount,rw /; mount -o remount,rw /usr; mount -t tmpfs none /usr; umount /usr; "
        "touch /usr/x /x"
    )
    assert_refused(text)
    assert not Path("/usr/x").exists() and not Path("/x").exists()


async def test_23_chroot_and_pivot(arena: Arena) -> None:
    assert_refused(await arena.python("import os\nos.mkdir('r')\nos.chroot('r')\n"))


async def test_24_userns_remount(arena: Arena) -> None:
    assert_refused(
        await arena.bash("unshare -Urm sh -c 'mount -o remount,bind,rw /usr && touch /usr/x'")
    )
    assert not Path("/usr/x").exists()


async def test_25_userns_any(arena: Arena) -> None:
    """Namespaces of users, mounts, processes, networks, names, messages and control groups."""
    text = await arena.python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "for kind in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x4000000, 0x8000000, "
        "0x2000000):\n"
        "    print('unshare', libc.unshare(kind), os.strerror(ctypes.get_errno()))\n"
        "    print('clone', libc.syscall(56 if os.uname().machine == 'x86_64' else 220, "
        "kind | 17, 0, 0, 0, 0), os.strerror(ctypes.get_errno()))\n"
        "print('clone3', libc.syscall(435, 0, 0), os.strerror(ctypes.get_errno()))\n"
    )
    assert text.count("-1 Operation not permitted") == 14, text
    assert "clone3 -1 Function not implemented" in text


async def test_26_mknod(arena: Arena) -> None:
    text = await arena.bash(
        "mknod disk b 254 0 && head -c 4 disk; mknod zero c 1 5 && head -c 4 zero"
    )
    assert_refused(text)
    assert not (arena.root / "disk").exists() and not (arena.root / "zero").exists()


SYSCTL = "/proc/sys/kernel/core_pattern"


@pytest.mark.parametrize("name", [SYSCTL])
async def test_27_sysctl(arena: Arena, name: str) -> None:
    """Opened for writing only; nothing is written."""
    text = await arena.python(f"import os\nos.open('{name}', os.O_WRONLY)\nprint('OPENED')\n")
    assert_refused(text)
    assert "OPENED" not in text


async def test_27b_other_switches_of_the_kernel(arena: Arena) -> None:
    for name in (
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/sys/kernel/modprobe",
        "/sys/kernel/uevent_helper",
    ):
        await test_27_sysctl(arena, name)


async def test_28_setuid(arena: Arena) -> None:
    text = await arena.bash(
        "grep -E 'NoNewPrivs|CapEff|CapBnd|Seccomp:' /proc/self/status; su -c id root < "
        "/dev/null; mount 2>&1 | tail -1; sudo -n id"
    )
    assert re.search(r"NoNewPrivs:\s1", text)
    assert re.search(r"CapEff:\s0{16}", text)
    if os.geteuid() == 0 or arena.tier == "full":  # only root can lower the bound
        assert re.search(r"CapBnd:\s0{16}", text)
    assert re.search(r"Seccomp:\s2", text)


async def test_28b_root_keeps_no_capability(arena: Arena) -> None:
    (arena.outside / "mine").write_text("x")
    (arena.outside / "mine").chmod(0)
    text = await arena.bash(
        f"cat {arena.outside}/mine; chown 1234 main.py; date -s 2001-01-01; hostname evil"
    )
    assert_refused(text)
    os.unlink(arena.outside / "mine")
    assert (arena.root / "main.py").stat().st_uid == os.geteuid()


# --- processes -------------------------------------------------------------


@pytest.fixture
def seconds() -> str:
    """Return seconds to sleep that no other test uses, so that its processes can be found."""
    return f"61.{secrets.randbelow(10**12):012}"


DETACHED = [
    "NAP &",
    "setsid NAP &",
    "nohup NAP >/dev/null 2>&1 &",
    "(setsid bash -c 'NAP & NAP &' &); sleep 0.2",
    "env -i PATH=$PATH setsid NAP & sleep 0.1",
]


@pytest.mark.parametrize("how", DETACHED)
async def test_29_daemonise(arena: Arena, how: str, seconds: str) -> None:
    await arena.bash(how.replace("NAP", f"sleep {seconds}"))
    assert find_processes(seconds) == []


async def test_29b_a_timeout_and_a_cancel_end_everything(arena: Arena, seconds: str) -> None:
    text = await arena.bash(f"setsid sleep {seconds} & sleep {seconds} | cat", seconds=1)
    assert "timed out after 1 s" in text
    assert find_processes(seconds) == []
    task = asyncio.create_task(
        arena.call("bash", command=f"setsid sleep {seconds} & sleep {seconds}")
    )
    await wait_until(lambda: find_processes(seconds))
    task.cancel()
    await asyncio.wait([task])
    assert find_processes(seconds) == []


KILLED = """
import asyncio, os, sys
from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox
request = SandboxRequest(
    workspace=sys.argv[1], mode=sys.argv[2], home=sys.argv[3], environ=os.environ
)
box, _ = choose_sandbox(request)
async def main():
    await box.run("true", timeout=60, sink=lambda chunk: None)
    nap = f"sleep {sys.argv[4]}"
    command = f"echo evil > .envrc; setsid {nap} & echo here; {nap}"
    await box.run(command, timeout=60, sink=lambda chunk: print("here", flush=True))
asyncio.run(main())
"""


async def test_30_kill_harness(arena: Arena, seconds: str) -> None:
    """After kill -9 of the harness nothing runs on, and no planted file stays."""
    words = [str(arena.root), arena.tier, str(arena.base / "records"), seconds]
    run = [sys.executable, "-c", KILLED, *words]
    process = subprocess.Popen(run, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"here\n"
    assert find_processes(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    await wait_until(lambda: not find_processes(seconds) and not (arena.root / ".envrc").exists())
    await arena.bash("true")


async def test_31_fd_inherit(arena: Arena) -> None:
    leak = os.open(arena.outside / "key", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        text = await arena.python(
            "import os\nfor n in range(3, 300):\n    try: print(n, os.read(n, 100), "
            "os.readlink(f'/proc/self/fd/{n}'))\n    except OSError: pass\nprint('looked')\n"
        )
    finally:
        os.close(leak)
    assert text.strip() == "looked"


SOCKETS = {
    "vsock": (40, 1),
    "netlink": (16, 3),
    "packet": (17, 3),
    "crypto": (38, 5),
    "bluetooth": (31, 3),
    "can": (29, 3),
    "unix": (1, 1),
    "rds": (21, 5),
    "tipc": (30, 1),
    "xdp": (44, 3),
}


async def test_32_33_vsock_and_odd_families(
    arena: Arena, names: Sequence[str] = tuple(SOCKETS)
) -> None:
    sockets = {name: SOCKETS[name] for name in names}
    text = await arena.python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, (domain, kind) in {sockets!r}.items():\n"
        "    print(name, libc.socket(domain, kind, 0), os.strerror(ctypes.get_errno()))\n"
    )
    assert text.splitlines() == [f"{name} -1 Operation not permitted" for name in names]


CALLS = {
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "pivot_root": (155, 41),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "swapon": (167, 224),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "io_uring_enter": (426, 426),
    "chroot": (161, 51),
    "reboot": (169, 142),
    "delete_module": (176, 106),
    "io_uring_register": (427, 427),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "kexec_file_load": (320, 294),
    "swapoff": (168, 225),
    "quotactl_fd": (443, 443),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "open_tree_attr": (467, 467),
}


async def test_34_system_calls(arena: Arena) -> None:
    """The arguments are harmless everywhere; the error number tells who refused."""
    column = 0 if os.uname().machine == "x86_64" else 1
    numbers = {name: pair[column] for name, pair in CALLS.items()}
    text = await arena.python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nMINUS = ctypes.c_long(-1)\n"
        f"for name, number in {numbers!r}.items():\n"
        "    ctypes.set_errno(0)\n    print(name, libc.syscall(number, MINUS, MINUS, MINUS, "
        "MINUS, MINUS, MINUS), ctypes.get_errno())\n"
    )
    answers = dict(re.findall(r"^(\w+) -1 (\d+)$", text, re.M))
    assert answers == {name: "38" if name.startswith("io_uring") else "1" for name in CALLS}


async def test_34b_x32_system_calls(arena: Arena) -> None:
    """The x32 numbers do not bypass the filter."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    text = await arena.python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nfor number in (165, 41, "
        "272):\n"
        "    print(libc.syscall(0x40000000 | number, 1, 1, 0, 0, 0), "
        "os.strerror(ctypes.get_errno()))\n"
    )
    assert text.count("-1 Function not implemented") == 3


async def test_35_memory(arena: Arena) -> None:
    text = await arena.python("print(len(bytearray(2 << 30)))\n")
    assert "MemoryError" in text


async def test_35b_killed_first_when_memory_runs_out(arena: Arena) -> None:
    assert (await arena.bash("cat /proc/self/oom_score_adj")) == "1000"


@pytest.mark.gap("file as root", "36: the kernel does not count root's processes")
async def test_36_fork_bomb(arena: Arena) -> None:
    program = (
        "import os, time\nn = 0\ntry:\n    while n < 800:\n        if os.fork() == 0:\n          "
        "  time.sleep(20); os._exit(0)\n        n += 1\n"
        "except OSError as error: print(error)\nprint('made', n)\n"
    )
    text = await arena.python(program)
    made = int(re.findall(r"made (\d+)", text)[0])
    assert made < 300
    assert "Resource temporarily unavailable" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="root only")
async def test_36c_another_users_workspace_keeps_its_owner(arena: Arena) -> None:
    for path in (arena.root, *arena.root.rglob("*")):
        os.lchown(path, 1234, 1234)
    if arena.tier != "full":
        pytest.skip("Landlock changes no owner, and root without capabilities may not write there")
    await arena.bash("echo x > made; git status --short; cat main.py")
    assert (arena.root / "made").stat().st_uid == 1234


async def test_36b_root_runs_commands_as_another_user(arena: Arena) -> None:
    """Commands of root lack root's user id, and files they write belong to root."""
    if arena.tier != "full" or os.geteuid() != 0:
        pytest.skip("only where root builds full walls")
    (arena.root / "main.py").chmod(0o600)
    text = await arena.bash(
        "cat /proc/self/uid_map; stat -c %U /usr; echo x > made; mkdir folder; cat main.py"
    )
    assert re.match(r"\s+1000\s+0\s+1\n", text), (
        "a second user namespace, made by another than root"
    )
    assert "nobody" in text, "root is somebody else here"
    assert (arena.root / "made").stat().st_uid == (arena.root / "folder").stat().st_uid == 0


async def test_37_fill_temp(arena: Arena) -> None:
    text = await arena.bash(
        "for folder in ${TMPDIR:-/tmp} ~; do dd if=/dev/zero of=$folder/big bs=1M count=300; done"
        " > /dev/null 2>&1; stat -c 'size %s' ${TMPDIR:-/tmp}/big ~/big"
    )
    sizes = [int(size) for size in re.findall(r"^size (\d+)", text, re.M)]
    assert len(sizes) == 2, text
    if arena.tier == "full":
        assert sum(sizes) <= 64 << 20, "both folders share one file system in memory"
    assert max(sizes) <= LIMITS.file_size


async def test_38_huge_file(arena: Arena) -> None:
    await arena.bash("truncate -s 100G sparse; head -c 1G /dev/zero > /dev/null; echo x")
    sparse = arena.root / "sparse"
    assert not sparse.exists() or sparse.stat().st_size <= LIMITS.file_size


async def test_39_other_repo(arena: Arena) -> None:
    text = await arena.bash(
        f"cat {arena.outside}/key; ls {arena.base}/proj-secret; cat ../proj-secret/key"
    )
    assert "PRIVATE-KEY" not in text
    assert_refused(text)


async def test_39b_session_files(arena: Arena) -> None:
    (arena.base / "records" / "session.db").write_text(arena.base.name + "MUD-RECORD")
    text = await arena.bash(
        f"cat {arena.base}/records/session.db; echo x > {arena.base}/records/session.db; echo x "
        f"> {arena.base}/records/sandbox.json"
    )
    assert "MUD-RECORD" not in text
    assert_refused(text)
    assert not (arena.base / "records" / "sandbox.json").exists()


async def test_40_tty_inject(arena: Arena) -> None:
    text = await arena.python(
        "import ctypes, fcntl, os, pty\nours, theirs = pty.openpty()\n"
        "for number in (0x5412, 0x541C, 0x100005412):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n    buffer = "
        "ctypes.create_string_buffer(b'x')\n"
        "    print(libc.ioctl(theirs, ctypes.c_ulong(number), buffer), "
        "os.strerror(ctypes.get_errno()))\n"
        if arena.tier == "full"
        else "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "for number in (0x5412, 0x541C, 0x100005412):\n"
        "    print(libc.ioctl(0, ctypes.c_ulong(number), b'x'), os.strerror(ctypes.get_errno()))\n"
    )
    assert text.count("-1 Operation not permitted") == 3, text


async def test_40b_no_terminal(arena: Arena) -> None:
    assert_refused(
        await arena.bash("echo x > /dev/tty; ps -o sid= -p $$ >/dev/null; cat < /dev/tty")
    )


async def test_41_terminal_escape(arena: Arena) -> None:
    text = await arena.bash(
        "printf '\\033]52;c;ZXZpbA==\\007\\033]0;title\\007'; "
        "printf '\\033]8;;http://evil\\007link\\033]8;;\\007 plain\\n'"
    )
    assert "\x1b" not in text and "\x07" not in text
    assert "plain" in text


@pytest.mark.parametrize("how", ["NAP & echo started", "cat <(NAP) & echo started"])
async def test_42_background_wait(arena: Arena, how: str, seconds: str) -> None:
    began = time.monotonic()
    text = await arena.bash(how.replace("NAP", f"sleep {seconds}"))
    assert text.split("\n")[0] == "started"
    assert time.monotonic() - began < 50
    assert find_processes(seconds) == []


# --- the sandbox itself ----------------------------------------------------


async def test_77_a_refusal_is_explained(arena: Arena) -> None:
    text = await arena.bash(f"echo x > {arena.outside}/file")
    assert f"[sandbox {arena.tier}: commands may write only in {arena.root}" in text
    assert "sandbox" not in await arena.bash("echo fine; exit 3"), "an ordinary failure is not"


async def test_78_without_a_sandbox_nothing_runs(arena: Arena, tmp_path: Path) -> None:
    """A sandbox that cannot be built is an error for the model; no command runs without it."""

    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    broken.chmod(0o755)
    arena.sandbox = BubblewrapSandbox(
        str(arena.root), str(broken), quarantine=str(tmp_path / "away"), environ=arena.environ
    )
    result = await arena.call("bash", command="touch ran")
    assert (
        result.error
        and "was not run: its sandbox could not be built" in result.text
        and "--sandbox off" in result.text
    )
    assert not (arena.root / "ran").exists()


async def test_79_the_self_test_finds_a_broken_sandbox(arena: Arena, tmp_path: Path) -> None:
    """A bubblewrap that does not isolate is found by the self-test, and no command runs."""
    if os.geteuid() == 0:
        pytest.skip("root's commands are another user's, who reaches nothing even so")

    place = tempfile.TemporaryDirectory(dir="/var/tmp")
    os.chmod(place.name, 0o755)
    fake = Path(place.name) / "bwrap"
    fake.write_text(
        "#!/bin/bash\necho '{\"child-pid\": '$$'}' >&3; read -n1 -u4; while [ \"$1\" != -- ]; do "
        'shift; done; shift; "$@"; echo \'{"exit-code": 0}\' >&3\n'
    )
    fake.chmod(0o755)
    box = BubblewrapSandbox(
        str(arena.root), str(fake), quarantine=str(tmp_path / "away"), environ=arena.environ
    )
    with place, pytest.raises(WorkspaceError, match="failed its self-test"):
        await box.run("touch ran", timeout=60, sink=lambda chunk: None)
    assert not (arena.root / "ran").exists()


# --- the suite itself ------------------------------------------------------

OPTIONS = {
    "network": (["--unshare-net"], "10_tcp_loopback", ()),
    "filter": (["--seccomp", "5"], "32_33_vsock_and_odd_families", (["netlink"],)),
    "hooks": (["--ro-bind", "ROOT/.git/hooks", "ROOT/.git/hooks"], "15_git_hook", ()),
    "config": (["--ro-bind", "ROOT/.git/config", "ROOT/.git/config"], "16_git_config", ()),
    "git folder": (["--bind", "ROOT/.git", "ROOT/.git"], "17_git_rename", ()),
    "settings": (["--ro-bind", "ROOT/.vscode", "ROOT/.vscode"], "18_agent_settings", ()),
    "own settings": (
        ["--ro-bind", "ROOT/.mudroom.toml", "ROOT/.mudroom.toml"],
        "18_agent_settings",
        (),
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
async def test_without_one_option_an_attack_succeeds(
    arena: Arena, listening: Listen, option: str
) -> None:
    """Each option is removed in turn, and an attack of the suite must succeed."""
    if arena.tier != "full":
        pytest.skip("these are options of tier full")
    words, name, more = OPTIONS[option]
    gone = [word.replace("ROOT", str(arena.root)) for word in words]
    build = arena.bubblewrap.build_argv

    def make_weaker_line(command: str) -> list[str]:
        argv = build(command)
        if option == "git folder":  # mounts inside it would protect it still
            inner = [
                n
                for n, word in enumerate(argv)
                if word == "--ro-bind" and argv[n + 1].startswith(f"{arena.root}/.git/")
            ]
            for n in reversed(inner):
                del argv[n : n + 3]
        at = next(n for n in range(len(argv)) if argv[n : n + len(gone)] == gone)
        return argv[:at] + argv[at + len(gone) :]

    arena.bubblewrap.build_argv = make_weaker_line
    test = globals()[f"test_{name}"]
    what = r"netlink \d" if option == "filter" else None
    with pytest.raises((AssertionError, pytest.fail.Exception), match=what):
        await (test(arena, listening) if name == "10_tcp_loopback" else test(arena, *more))


VACUOUS = [
    "01_write_outside",
    "02_symlink_out",
    "03_dir_symlink_out",
    "04_hardlink_out",
    "05_ssh_key",
    "07_env_key",
    "10_tcp_loopback",
    "12_abstract_socket",
    "15_git_hook",
    "16_git_config",
    "17_git_rename",
    "17b_git_commondir",
    "18_agent_settings",
    "28_setuid",
    "35b_killed_first_when_memory_runs_out",
    "39_other_repo",
    "77_a_refusal_is_explained",
]


@pytest.mark.parametrize("name", VACUOUS)
async def test_the_attack_succeeds_without_a_sandbox(tmp_path: Path, name: str) -> None:
    """The same attack succeeds on a plain shell, so the sandbox is what stops it."""
    place = Arena(tmp_path, "off")
    listeners: list[socket.socket] = []

    def listen(family: int, kind: int, address: Any) -> socket.socket:
        server = socket.socket(family, kind)
        server.bind(address)
        server.listen()
        server.settimeout(0.3)
        listeners.append(server)
        return server

    test = globals()[f"test_{name}"]
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            await (
                test(place, listen)
                if "listening" in test.__code__.co_varnames[: test.__code__.co_argcount]
                else test(place)
            )
    finally:
        for server in listeners:
            server.close()
