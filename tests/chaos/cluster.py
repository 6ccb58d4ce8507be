"""A Ray cluster of several nodes on this machine, in a network that has only loopback.

Each node has an address of its own (127.0.0.1, 127.0.0.2 and so on), so a session connects to the
first one, which is never killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mudroom._platform.processes import (
    Process,
    list_pids,
    list_processes,
    read_environ,
    read_process,
)

from ..postgres_server import find_free_port
from ..waiting import block_until, is_alive

_MARK = "MUDROOM_CHAOS_NODE"
_START_SECONDS = 120
_STORE_BYTES = "80000000"
"""Size of the object store of a node; Ray wants at least 75 MB. Not used."""
_WAIT_FOR_NODES = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) > int(sys.argv[2]):
    time.sleep(0.1)
"""
HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""With the values of Ray itself, a killed node is noticed after 14 s and a hung one after 64 s."""


def has_command(pid: int, program: str) -> bool:
    """Return whether a process executes a program of this name."""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return os.path.basename(command[0]) == program.encode()
    return False


class RayCluster:
    """A cluster. The processes of its nodes have a variable by which they are known.

    Arguments:
        folder: for the files of Ray; its path must be short.

    Attributes:
        address: of the cluster, for RAY_ADDRESS.
        nodes: the raylet process of each node, by the address of the node. The first one is the
            head.
    """

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{find_free_port()}"
        self.nodes: dict[str, int] = {}
        self._folder = folder
        self._id = uuid.uuid4().hex
        self._count = 0
        self._processes: dict[int, Process] = {}

    @property
    def head(self) -> int:
        """The raylet process of the first node."""
        return next(iter(self.nodes.values()))

    def add_node(self, within: Sequence[str] = ()) -> None:
        """Start a node, the head first, and wait until it works.

        Arguments:
            within: command that executes the command of the node, in namespaces of its own.
        """
        self._count += 1
        address = f"127.0.0.{self._count}"
        mark = f"{self._id}-{self._count}-"
        port = self.address.partition(":")[2]
        head = [
            "--head",
            f"--port={port}",
            f"--temp-dir={self._folder}",
            "--include-dashboard=false",
        ]
        ports = ("dashboard-agent-listen-port", "metrics-export-port")
        command = [
            *within,
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            *(head if self._count == 1 else ["--address", self.address]),
            f"--node-ip-address={address}",
            "--num-cpus=1",
            f"--object-store-memory={_STORE_BYTES}",
            "--disable-usage-stats",
            *(f"--{port}={find_free_port()}" for port in ports),
        ]
        started = subprocess.run(
            command,
            env=self._make_environ(mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        raylets = [pid for pid in self._list_processes(mark) if has_command(pid, "raylet")]
        assert started.returncode == 0 and raylets, started.stdout
        self.nodes[address] = raylets[0]
        self._note_processes(mark)

    def _note_processes(self, mark: str) -> None:
        """Note the processes of a node, by their variable and below its raylet.

        Processes of Ray that change their title lose their variables.
        """
        marked = self._list_processes(mark)
        for process in list_processes():
            if process.pid in marked or process.parent in self.nodes.values():
                self._processes[process.pid] = process

    def _make_environ(self, mark: str) -> dict[str, str]:
        environ = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
        return environ | HEALTH_CHECKS | {_MARK: mark}

    def _list_processes(self, mark: str) -> list[int]:
        line = f"{_MARK}={mark}".encode()
        return [pid for pid in list_pids() if line in (read_environ(pid) or b"")]

    def kill_node(self, address: str) -> None:
        """Kill the daemon of a node and its worker processes; wait until the cluster knows it."""
        raylet = self.nodes.pop(address)
        pids = [each.pid for each in list_processes() if each.parent == raylet]
        for pid in [raylet, *pids]:
            os.kill(pid, signal.SIGKILL)
        command = [sys.executable, "-c", _WAIT_FOR_NODES, self.address, str(len(self.nodes))]
        subprocess.run(command, timeout=_START_SECONDS, check=True)

    def kill_head(self) -> None:
        """Kill the daemons of the head: the register of the cluster (GCS) and the raylet."""
        self._note_processes(self._id)
        marked = self._list_processes(f"{self._id}-1-")
        daemons = [pid for pid in marked if has_command(pid, "gcs_server")] + [self.head]
        assert len(daemons) == 2
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """End all processes of the nodes, also those of nodes that were killed."""
        self._note_processes(self._id)
        pids = [
            pid
            for pid, process in self._processes.items()
            if (found := read_process(pid)) and found.started == process.started
        ]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        block_until(lambda: not any(map(is_alive, pids)))
