"""Fixtures: a disk that fails, the check of a record, and figures.

A test reports a figure with the fixture `figure`; the long form prints all as a table at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from mudroom import AnyEvent
from mudroom._core.events import Delta
from mudroom._replay import ReplayDiverged, replay
from mudroom.testing.invariants import find_violations

Figure = Callable[[str, str], None]


class CheckRecord(Protocol):
    """Check of a finished session: its record keeps all promises, and replays."""

    async def __call__(
        self,
        events: Iterable[AnyEvent],
        *,
        where: str = "",
        timed: bool = True,
        effects: Mapping[str, int] | None = None,
    ) -> None: ...


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Return a function that reports a figure: its name and its value."""
    return lambda name, value: request.node.user_properties.append(("figure", f"{name}\t{value}"))


@pytest.fixture
def check_record() -> CheckRecord:
    """Return a check of a finished session: its record keeps all promises, and replays."""
    return _check_record


async def _check_record(
    events: Iterable[AnyEvent],
    *,
    where: str = "",
    timed: bool = True,
    effects: Mapping[str, int] | None = None,
) -> None:
    record = [event for event in events if not isinstance(event, Delta)]
    assert not find_violations(record, timed=timed, effects=effects), where
    try:
        assert await replay(record) == record, where
    except ReplayDiverged as error:
        raise AssertionError(f"{where}: {error}") from error


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that records or fails disk operations (LD_PRELOAD); see disk.c."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to make a disk that fails")
    library = tmp_path_factory.mktemp("shim") / "disk.so"
    words = (
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(Path(__file__).with_name("disk.c")),
        "-ldl",
    )
    subprocess.run(words, check=True, capture_output=True)
    return library


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # A worker of pytest-xdist has a summary, too: of its own tests.
    if not os.environ.get("MUDROOM_LONG") or hasattr(terminalreporter.config, "workerinput"):
        return
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    figures = [
        str(value).split("\t", 1)
        for report in passed
        for name, value in report.user_properties
        if name == "figure"
    ]
    cases = Counter(
        report.nodeid.partition("[")[0].rpartition("::")[2].removeprefix("test_").replace("_", " ")
        for report in passed
        if "tests/reliability/" in report.nodeid
    )
    rows = [*figures, *([name, f"{count} cases"] for name, count in cases.items() if count > 4)]
    terminalreporter.section("figures")
    for name, value in rows:
        terminalreporter.write_line(f"{name:<72} {value}")
    if os.environ.get("MUDROOM_FIGURES"):
        _write_figures(terminalreporter, rows)


def _write_figures(terminalreporter: pytest.TerminalReporter, rows: list[list[str]]) -> None:
    """Write the figures to the page, if all tests passed."""
    from benchmarks.pages import RELIABILITY, find_commit, format_reliability, write_figures

    if failed := len(terminalreporter.getreports("failed") + terminalreporter.getreports("error")):
        terminalreporter.write_line(f"not written to {RELIABILITY}: {failed} tests failed")
        return
    write_figures(RELIABILITY, format_reliability([(n, v) for n, v in rows], find_commit()))
    terminalreporter.write_line(f"written to {RELIABILITY}")
