"""Time limits hold in a task that is being cancelled, on every Python from 3.11.0 on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom._platform import time_limits
from mudroom._platform.time_limits import IS_FIXED, PatchedTimeout, time_limit, time_limit_at

SOURCE = Path(__file__).parents[2] / "src" / "mudroom"


@pytest.fixture(autouse=True, params=[asyncio.Timeout, PatchedTimeout])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test the class that other versions of Python use, too."""
    if request.param is asyncio.Timeout and not IS_FIXED:
        pytest.skip("asyncio's own class is wrong before Python 3.11.3")
    monkeypatch.setattr(time_limits, "_kind", request.param)


async def test_a_limit_in_the_clean_up_of_a_cancelled_task_is_a_timeout() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for name in ("first", "second"):
                try:
                    async with time_limit(0):
                        await asyncio.Event().wait()
                except TimeoutError:
                    steps.append(name)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["first", "second"]


@pytest.mark.parametrize("cancels_before", range(3))
async def test_a_new_cancel_is_not_taken_for_the_end_of_the_time(cancels_before: int) -> None:
    inside = asyncio.Event()
    outcomes: list[type[BaseException]] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(cancels_before):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        try:
            async with time_limit(60) as limit:
                inside.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    limit.reschedule(0)  # both end it: the time, too, is over now
                    await asyncio.sleep(0)
        except BaseException as error:  # noqa: BLE001  its type is the outcome
            outcomes.append(type(error))

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert outcomes == [asyncio.CancelledError]


async def test_an_outer_limit_ends_the_inner_block() -> None:
    inner = time_limit(60)
    with pytest.raises(TimeoutError):
        async with time_limit(0):
            async with inner:
                await asyncio.Event().wait()
    assert not inner.expired()


async def test_a_limit_without_an_end_can_be_given_one() -> None:
    now = asyncio.get_running_loop().time()
    for limit in (time_limit(None), time_limit_at(None), time_limit_at(now + 60)):
        with pytest.raises(TimeoutError):
            async with limit:
                limit.reschedule(now)
                await asyncio.Event().wait()


async def test_what_a_block_raises_after_its_time_is_kept() -> None:
    with pytest.raises(KeyError):
        async with time_limit(0):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError from None


def test_no_module_uses_the_timeouts_of_asyncio() -> None:
    """In `mudroom.testing` they are the outermost limits of a test, whose task nobody cancels."""
    found = [
        str(path.relative_to(SOURCE.parent))
        for package in SOURCE.parent.glob("mudroom*")
        for path in package.rglob("*.py")
        if "asyncio.timeout(" in (text := path.read_text()) or "asyncio.timeout_at(" in text
    ]
    assert [name for name in found if not name.startswith("mudroom/testing/")] == []
