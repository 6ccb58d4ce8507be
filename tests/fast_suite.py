"""The suite of `make test-fast`: the tests that start no process.

No list says which tests these are. The first process that a test starts ends the test, which then
counts as skipped; pytest's cache remembers it, and the next run leaves it out. A file that has
changed is tried anew.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TypedDict, cast

import pytest

STARTS = frozenset(
    {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "pty.spawn"}
)
"""Audit events of Python that precede a new process."""
REASON = "starts a process"
KEY = "mudroom/starts-processes"


class File(TypedDict):
    """What is known of a file of tests.

    Attributes:
        time: when the file was changed.
        skipped: its tests that start a process.
        runs: it has others, too.
    """

    time: int
    skipped: list[str]
    runs: bool


class FastSuite:
    """Plugin that ends each test which starts a process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._runs_test = False
        self._has_started = False
        assert config.cache
        known = cast("dict[str, File]", config.cache.get(KEY, {}))
        self._files = {name: file for name, file in known.items() if file["time"] == _stamp(name)}
        self._tried: dict[str, dict[str, bool]] = {}
        sys.addaudithook(self._refuse)

    def _refuse(self, event: str, _: object) -> None:
        if not self._runs_test or event not in STARTS:
            return
        self._has_started = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            # Something may wait for the task that wanted the process.
            loop.call_soon(_cancel_all, loop)
        # No `except Exception` of the program catches it.
        raise pytest.skip.Exception(REASON)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        file = self._files.get(collection_path.relative_to(self._config.rootpath).as_posix())
        return True if file and not file["runs"] else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left_out: list[pytest.Item] = []
        kept: list[pytest.Item] = []
        for item in items:
            name, _, test = item.nodeid.partition("::")
            file = self._files.get(name)
            (left_out if file and test in file["skipped"] else kept).append(item)
        self._config.hook.pytest_deselected(items=left_out)
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._runs_test, self._has_started = True, False
        try:
            return (yield)
        finally:
            self._runs_test = False
            if self._has_started:
                # What the test left open belongs to no later test.
                with warnings.catch_warnings(action="ignore"):
                    gc.collect()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Turn whatever became of a refused process into a skip."""
        if self._has_started:
            call.excinfo = None if call.when == "teardown" else _make_skip()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, test = report.nodeid.partition("::")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        tests = self._tried.setdefault(file, {})
        tests[test] = tests.get(test, False) or reason.endswith(REASON)

    def pytest_sessionfinish(self) -> None:
        config = self._config
        is_narrowed = config.args_source is config.ArgsSource.ARGS or config.option.keyword
        if is_narrowed or hasattr(config, "workerinput"):
            return
        for name, tests in self._tried.items():
            skipped = [test for test, starts in tests.items() if starts]
            file = self._files.get(name)
            self._files[name] = {
                "time": _stamp(name),
                "skipped": sorted({*skipped, *(file["skipped"] if file else ())}),
                "runs": len(skipped) < len(tests),
            }
        assert config.cache
        config.cache.set(KEY, self._files)


def _stamp(name: str) -> int:
    try:
        return os.stat(name).st_mtime_ns
    except OSError:
        return 0


def _make_skip() -> pytest.ExceptionInfo[BaseException]:
    with pytest.raises(BaseException) as caught:
        pytest.skip(REASON)
    return caught


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
