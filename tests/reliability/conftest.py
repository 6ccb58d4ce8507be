"""Figures of the proofs: a test tells one with the fixture `figure`; the long form prints them all as a table at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

Figure = Callable[[str, str], None]


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Tell a figure: what was measured, and what came out."""
    return lambda what, value: request.node.user_properties.append(("figure", f"{what}\t{value}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not os.environ.get("MUDROOM_LONG"):
        return
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    told = [str(value).split("\t", 1) for report in passed for name, value in report.user_properties if name == "figure"]
    cases = Counter(report.nodeid.partition("[")[0].rpartition("::")[2].removeprefix("test_").replace("_", " ") for report in passed)
    rows = [*told, *([name, f"{count} cases"] for name, count in cases.items() if count > 4)]
    terminalreporter.section("figures")
    for what, value in rows:
        terminalreporter.write_line(f"{what:<72} {value}")
