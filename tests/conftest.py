"""The start and the end of a test run: signals, and programs that are missing."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from .fast_suite import FastSuite
from .memory_folder import find_memory_folder
from .postgres_server import PostgresServer, find_program

PROGRAMS = {
    "bubblewrap": ("bwrap", r"bwrap|bubblewrap|no sandbox full|tier full|this tier does not work"),
    "chromium": ("chromium", r"chromium"),
    "tmux": ("tmux", r"tmux"),
    "zsh": ("zsh", r"\bzsh\b"),
    "fish": ("fish", r"\bfish\b"),
    "strace": ("strace", r"strace"),
    "gcc": ("gcc", r"\bgcc\b"),
    "postgresql": ("pg_config", r"PostgreSQL"),
    "pgbouncer": ("pgbouncer", r"pgbouncer"),
}
"""Package -> the program it installs, and a pattern of the reasons to skip a test without it."""


def describe_missing(
    reasons: Iterable[str], find_program: Callable[[str], str | None] = shutil.which
) -> str:
    """Return how many tests each missing program skipped and how to install it, "" for none."""
    counts: Counter[str] = Counter()
    for reason in reasons:
        for package, (program, pattern) in PROGRAMS.items():
            if re.search(pattern, reason) and not find_program(program):
                counts[package] += 1
    if not counts:
        return ""
    tests = ", ".join(f"{package} ({count})" for package, count in counts.most_common())
    return f"skipped because a program is missing: {tests}; apt install {' '.join(sorted(counts))}"


def pytest_configure(config: pytest.Config) -> None:
    """Undo settings of the caller that the programs of the tests would inherit."""
    stop_ignoring_interrupts()
    write_bytecode()
    if os.environ.get("MUDROOM_FAST"):
        config.pluginmanager.register(FastSuite(config))


def stop_ignoring_interrupts() -> None:
    """Stop ignoring SIGINT: programs that tests start and interrupt would ignore it too.

    A shell script ignores it in what it starts with `&`.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def write_bytecode() -> None:
    """Write bytecode files even if the caller does not: each program would compile all it imports.

    It costs 0.8 s of CPU for each `mudroom` command, and 10 s for the tests themselves.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect no garbage while modules are imported: they make much that is kept, and no cycles.

    A third of the CPU time of collection went into searches for garbage.
    """
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave all modules and test items out of the searches for garbage.

    A search went through 1.8 million objects, which takes a second.
    """
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the missing programs as the last line."""
    reports: list[pytest.TestReport] = terminalreporter.getreports("skipped")
    reasons = [str(report.longrepr).rpartition("Skipped: ")[2] for report in reports]
    if text := describe_missing(reasons):
        terminalreporter.write_line(text, yellow=True)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder in memory if there is room: a killed process loses nothing that it wrote.

    So a slow disk fails no test.
    """
    memory = find_memory_folder()
    if memory is None:
        yield tmp_path_factory.mktemp("test")
        return
    folder = tempfile.mkdtemp(prefix="mudroom-test-", dir=memory)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def forget_what_servers_taught() -> Iterator[None]:
    """Forget after each test what refusals taught: a later server may get the same port."""
    yield
    if facts := sys.modules.get("mudroom._adapters.models.model_facts"):
        facts.forget_learnt_facts()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start one PostgreSQL server for the tests of a worker that need it."""
    if not find_program("initdb"):
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the address of a database without sessions, which the next test empties."""
    return postgres_server.get_empty_database()
