"""A PostgreSQL server as a child process: its own folder, a loopback port, no system service."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from glob import glob
from itertools import count
from pathlib import Path

from .waiting import block_until, is_alive

_START_SECONDS = 30.0


def find_program(name: str) -> str:
    """Return the path of a program of PostgreSQL, "" if it is not installed."""
    found = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name) or ""


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_unprivileged(*command: str) -> list[str]:
    """Return a command that runs as an ordinary user and ends with this process."""
    if os.geteuid():
        return ["setpriv", "--pdeathsig", "KILL", *command]
    user = get_user()
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--pdeathsig", "KILL", *command]


def list_children(process: int) -> list[int]:
    """Return the ids of the processes that a process with one thread has started."""
    try:
        return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
    except OSError:
        return []


def get_user() -> pwd.struct_passwd:
    """Return the user of the server: PostgreSQL refuses root."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


class PostgresServer:
    """A server. `start` and `kill` can be called again and again; `remove` ends it."""

    def __init__(self, *, settings: tuple[str, ...] = ("fsync=off",)) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mudroom-postgres-"))
        os.chown(self.folder, get_user().pw_uid, get_user().pw_gid)
        self.port = find_free_port()
        self._settings = settings
        self._names = count(1)
        self._shared = ""
        self._process: subprocess.Popen[bytes] | None = None
        command = [find_program("initdb"), "-D", f"{self.folder}/cluster", "-U", "mudroom"]
        subprocess.run(
            run_unprivileged(
                *command,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ),
            check=True,
            capture_output=True,
            cwd="/",
        )

    @property
    def pid(self) -> int | None:
        """Id of the server's first process, None if it does not run."""
        return self._process and self._process.pid

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        options = [
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.folder}",
            "max_connections=60",
            "shared_buffers=16MB",
            *self._settings,
        ]
        flags = [part for option in options for part in ("-c", option)]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                run_unprivileged(find_program("postgres"), "-D", f"{self.folder}/cluster", *flags),
                stdout=log,
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.read_log())
            time.sleep(0.02)

    def _answers(self) -> bool:
        command = [find_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the server's first process and wait until all its processes end."""
        if self._process is not None:
            children = list_children(self._process.pid)
            self._process.send_signal(number)
            self._process.wait()
            self._process = None
            block_until(lambda: not any(map(is_alive, children)))

    def remove(self) -> None:
        """End the server and delete its folder."""
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self) -> str:
        """Create an empty database and return its address."""
        name = f"test_{next(self._names)}"
        self.run_sql(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.make_url(name)

    def get_empty_database(self) -> str:
        """Return the address of a database that has no sessions. The next call empties it."""
        if not self._shared:
            self._shared = self.create_database()
        name = self._shared.rpartition("/")[2]
        if self.run_sql("SELECT to_regclass('mudroom.events')", name):
            self.run_sql("TRUNCATE mudroom.sessions, mudroom.events", name)
        self.run_sql("DROP SCHEMA IF EXISTS mudroom_serve CASCADE", name)
        return self._shared

    def make_url(self, database: str, port: int | None = None, user: str = "mudroom") -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def run_sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement and return its rows as text."""
        psql = [find_program("psql"), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*psql, "-d", self.make_url(database), "-c", statement],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def read_log(self) -> str:
        return (self.folder / "log").read_text()
