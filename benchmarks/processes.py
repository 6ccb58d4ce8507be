"""Measured processes, and the model server beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from .certificates import write_certificate

_HERE = Path(__file__).resolve().parent.parent


class Figures(Struct, frozen=True):
    """Cost of one run.

    Arguments:
        cpu, wall: seconds.
        peak: memory in KiB.
        requests: number of requests.
        most: most requests at the same time.
        lag, busy, collecting: figures of `benchmarks.crowd_subject`.
        main, waiting, workers: figures of `benchmarks.simulation.subject`.
        ray_process, ray_peak, workers_peak: figures of `benchmarks.fleet_subject`.
    """

    cpu: float
    wall: float
    peak: float
    requests: int
    most: int
    lag: float = 0.0
    busy: float = 0.0
    collecting: float = 0.0
    main: float = 0.0
    waiting: float = 0.0
    workers: float = 0.0
    ray_process: float = 0.0
    ray_peak: float = 0.0
    workers_peak: float = 0.0


SHORT_RUNS = 3
"""How many times as often runs of half a second are repeated: they differ by a factor of two."""
_FILE_SIZE = 2_000
"""Bytes of each file that the children read."""


class Bench:
    """The model server, a folder with files of 2,000 bytes, and runs against them.

    Use it as a context manager.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._numbers = count(1)

    def __enter__(self) -> Bench:
        self.folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="mudroom-bench-")
        )
        self.home = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mudroom-bench-"))
        _write_files(self.folder, _FILE_SIZE)
        self._certificate = Path(self.home, "certificate.pem")
        key = Path(self.home, "key.pem")
        write_certificate(self._certificate, key)
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.server", str(self._certificate), str(key)],
            stdout=subprocess.PIPE,
            cwd=_HERE,
            text=True,
        )
        self._stack.enter_context(server)
        self._stack.callback(server.terminate)
        assert server.stdout
        plain_port, tls_port = server.stdout.readline().split()
        self.url = f"http://127.0.0.1:{plain_port}"
        self.tls_url = f"https://127.0.0.1:{tls_port}"
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(
        self,
        which: str,
        children: int,
        turns: int,
        delay: int | str = 0,
        *,
        pieces: int = 0,
        is_encrypted: bool = False,
        tool: str = "read",
        folder: str = "",
        module: str = "benchmarks.subject",
    ) -> Figures:
        """Measure one run in a process of its own.

        Arguments:
            which: "mudroom", "memory" (its journal in memory), "processes" (two worker processes)
                or "floor".
            delay: milliseconds before each answer, or a range as "500-2500".
            pieces: of the last answer of a child, streamed one at a time; 0 for one packet.
            is_encrypted: connect with TLS.
            tool: tool that the children call, "read" or "glob".
            folder: folder of the run; by default that with the files.
            module: the program of the process.

        Raises RuntimeError when the run did not do all its work.
        """
        run, prompt = self._make_prompt(children, turns, delay, pieces=pieces, tool=tool)
        url = self.tls_url if is_encrypted else self.url
        ended = subprocess.run(
            [sys.executable, "-m", module, which, url, folder or self.folder, prompt],
            capture_output=True,
            text=True,
            cwd=_HERE,
            env=self.make_environ(),
            check=False,
        )
        seen = self.read_record(run)
        if ended.returncode or not seen or seen["requests"] != children * (turns + 1) + 2:
            requests = seen and seen["requests"]
            shape = f"{children} children × {turns} turns"
            raise RuntimeError(f"{which}, {shape}: {requests} requests\n{ended.stderr}")
        cost = json.loads(ended.stdout.splitlines()[-1])
        del cost["text"]
        return Figures(**cost, requests=seen["requests"], most=seen["most"])

    def list_bodies(self, children: int, turns: int) -> list[tuple[str, str]]:
        """Return the requests of a mudroom run in order, as (conversation, body)."""
        run, prompt = self._make_prompt(children, turns, 0, keep=1)
        command = [
            sys.executable,
            "-m",
            "benchmarks.subject",
            "mudroom",
            self.url,
            self.folder,
            prompt,
        ]
        subprocess.run(command, capture_output=True, cwd=_HERE, env=self.make_environ(), check=True)
        return [(name, body) for name, body in self.read_record(run)["kept"]]

    def measure_first_request(self, which: str) -> float:
        """Return the seconds from the start of `mudroom -p`, or of the floor, to its request."""
        run, prompt = self._make_prompt(1, 1, 0)
        start = time.monotonic()
        if which == "mudroom":
            self.measure_command("-p", prompt, "--model", "anthropic:bench", "-C", self.folder)
        else:
            self.measure_process(
                [sys.executable, "-m", "benchmarks.subject", which, self.url, self.folder, prompt]
            )
        return self.read_record(run)["first"] - start

    def measure_command(self, *arguments: str) -> float:
        """Return the CPU seconds of one `mudroom` command."""
        return self.measure_process([str(Path(sys.executable).with_name("mudroom")), *arguments])

    def measure_process(self, command: Sequence[str]) -> float:
        """Return the CPU seconds of a process. Raises RuntimeError with its output if it fails."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.make_environ(),
                cwd=_HERE,
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                text = output.read().decode(errors="replace")
                raise RuntimeError(f"{' '.join(command)}: {text}")
        return used.ru_utime + used.ru_stime

    def read_record(self, run: str) -> dict[str, Any]:
        """Return the server's record of a run; see `benchmarks.server`."""
        with urllib.request.urlopen(f"{self.url}/{run}") as answer:
            return json.load(answer)

    def make_folder(self, file_size: int) -> str:
        """Make a folder with files of another size, and return its path."""
        temporary = tempfile.TemporaryDirectory(prefix="mudroom-bench-")
        folder = self._stack.enter_context(temporary)
        _write_files(folder, file_size)
        return folder

    def _make_prompt(
        self,
        children: int,
        turns: int,
        delay: int | str,
        *,
        keep: int = 0,
        pieces: int = 0,
        tool: str = "read",
    ) -> tuple[str, str]:
        run = f"r{next(self._numbers)}"
        return run, f"bench:{run}:parent:{children}:{turns}:{delay}:{keep}:{pieces}:{tool}"

    def make_environ(self) -> dict[str, str]:
        """Return the environment of measured processes."""
        own = {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "none",
            "MUDROOM_HOME": self.home,
            "SSL_CERT_FILE": str(self._certificate),
        }
        # Without byte code, each process would compile mudroom first.
        return {
            name: value
            for name, value in os.environ.items()
            if not name.lower().endswith("_proxy") and name != "PYTHONDONTWRITEBYTECODE"
        } | own


def _write_files(folder: str, size: int) -> None:
    """Write the files that the children read, in lines of 40 bytes."""
    for number in range(100):
        line = f"There are forty characters in each line {number:02}\n"[-40:]
        Path(folder, f"notes-{number:02}.txt").write_text(line * (size // 40), encoding="utf-8")
