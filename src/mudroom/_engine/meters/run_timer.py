"""Time: the age and deadlines of runs, and the silence that ends a model call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from operator import attrgetter

from ..._core.budgets import Limit, LimitState, choose_smaller
from ..._core.events import MessageSent, RunResumed, RunWaiting, StoredEvent
from ..._core.ports import Clock
from ..._core.runs import Reason
from .meter import Meter, SharedTime

RECENT_ANSWERS = 5  # the longest of them tells how long a last turn takes
SLACK = 1.25  # how much longer than the longest recent answer one may take

FIRST_GUESS = 10.0  # seconds, before the first answer; at most a quarter of the time left

GRACE_SECONDS = 60.0  # for the summary turn, at most
_MIN_GRACE = 5.0  # seconds for the summary turn after a shorter time limit
_PATIENCE = 3  # expected answers that a run above waits for a summary
_MARGIN = 0.05  # of the time limit, for everything besides answers: processes must end
_MAX_MARGIN = 1.0  # seconds


class RunTimer:
    """A run's age and deadline, and how long its answers take.

    The age does not grow while the run waits for an approval, or for a limit of tokens or money.

    A run with a time limit works until the limit and then has its last turn. The runs below it must
    end before that, so that it can read their reports and answer in time. So each of them stops
    working earlier, by one answer of the run above and its own last turn.

    Attributes:
        deadline: timeout of the run while it takes turns; each pause postpones it.
        is_timed: true if the run has a time limit, or one above it had when it started.
    """

    def __init__(self, clock: Clock, meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self._started_at = clock.monotonic()
        self._stopped_at: float | None = None
        self._pauses = 0
        self._waits = 0
        self._answers: tuple[float, ...] = ()
        self._answers_below: tuple[float, ...] = ()
        self.deadline: asyncio.Timeout | None = None
        # Most runs have no time limit, and look for one only once.
        self.is_timed = meter.budget.seconds is not None or meter.find_time_above() is not None
        meter.timer = self

    @property
    def age(self) -> float:
        """Seconds since the run started, excluding pauses and waits."""
        now = self._clock.monotonic() if self._stopped_at is None else self._stopped_at
        # Sums of waits are rounded; a run that only waited must not get a negative age.
        age = now - self._started_at
        return age if age > 0 else 0.0

    @property
    def time_left(self) -> float | None:
        limit = self._meter.budget.seconds
        return None if limit is None else max(0.0, limit - self.age)

    @property
    def limit(self) -> LimitState | None:
        maximum = self._meter.budget.seconds
        return None if maximum is None else LimitState(Limit.SECONDS, maximum, round(self.age, 3))

    @property
    def expected_answer(self) -> float | None:
        """Expected seconds of the next answer, None while nothing is known."""
        if self._answers:
            return self._expect(self._answers)
        above = self._meter.find_time_above()
        return above.answer if above else None

    @property
    def ending_left(self) -> float | None:
        """Seconds until the run and its last turn must be over; None if no run above waits."""
        above = self._meter.find_time_above()
        return above.seconds if above and above.holds_ending else None

    def find_shortage(self) -> LimitState | None:
        """Return the time limit if not enough is left for another answer and a last turn."""
        above = self._meter.find_time_above()
        if above is None:
            return None
        needed = 0.0
        if (expected := self.expected_answer) is not None:
            if above.holds_ending:
                recent = self._answers or (expected,)
                needed = expected + sum(recent) / len(recent)
            elif not self._answers:
                needed = expected  # without an answer, there would be nothing to summarise
        if above.seconds > 0 and above.seconds >= needed:
            return None
        age = round(self.age, 3)
        return self.limit or LimitState(Limit.SECONDS, age + max(0.0, above.seconds), age)

    def choose_grace(self, reason: Reason, limit: LimitState | None) -> float:
        """Choose the seconds for the summary; after a time limit, at most the limit itself.

        If a run above is waiting, at most what is left until its turn, or a few usual answers.
        """
        if reason is not Reason.TIMEOUT:
            return GRACE_SECONDS
        grace = limit.maximum if limit else GRACE_SECONDS
        expected = self.expected_answer
        if expected is not None and (left := self.ending_left) is not None:
            grace = min(grace, max(left, _PATIENCE * expected))
        return min(GRACE_SECONDS, max(_MIN_GRACE, grace))

    def choose_grace_below(self, reason: Reason) -> float:
        grace = self.choose_grace(reason, self.limit)
        below = self.find_time_below()
        if reason is not Reason.TIMEOUT or below is None or below.answer is None:
            return grace
        return min(grace, max(_MIN_GRACE, _PATIENCE * below.answer))

    def find_time_below(self) -> SharedTime | None:
        if not self.is_timed and self._meter.is_run:
            return None
        left = self._compute_work_left()
        if left is None:
            return None
        answer = self._expect(self._answers_below) if self._answers_below else None
        if not self._meter.is_run:
            return SharedTime(left, holds_ending=False, answer=answer)
        if self._answers:
            return SharedTime(left - self._expect(self._answers), answer=answer)
        return SharedTime(left - min(FIRST_GUESS, left / 4), answer=answer)

    def learn(self, seconds: float) -> None:
        """Note how long an answer took, here and for the siblings."""
        if not self.is_timed or self._meter.member.is_part:
            return
        self._answers = (*self._answers[1 - RECENT_ANSWERS :], seconds)
        if self._meter.parent is not None:
            self._meter.parent.learn_seconds(seconds)
        self.update_deadline()

    def learn_below(self, seconds: float) -> None:
        self._answers_below = (*self._answers_below[1 - RECENT_ANSWERS :], seconds)

    def add_past(self, seconds: float) -> None:
        self._started_at -= seconds

    def start_deadline(self, deadline: asyncio.Timeout) -> None:
        self.deadline = deadline
        self.update_deadline()

    def update_deadline(self) -> None:
        """Recompute the deadline, which depends on the runs above and the answers so far."""
        deadline = self.deadline
        if not self.is_timed or deadline is None or deadline.expired():
            return
        left = None if self._pauses else self._compute_work_left()
        loop = asyncio.get_running_loop()
        deadline.reschedule(None if left is None else loop.time() + left)

    @contextmanager
    def wait(self) -> Generator[None]:
        """Inside the `with` block the run waits for a limit, without using up its own time.

        The time of the runs above goes on.
        """
        self._stop(waits=1)
        try:
            yield
        finally:
            self._stop(waits=-1)

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clock; calls nest."""
        self._stop(pauses=1 if paused else -1)

    def _stop(self, *, pauses: int = 0, waits: int = 0) -> None:
        self._pauses += pauses
        self._waits += waits
        if self._pauses or self._waits:
            if self._stopped_at is None:
                self._stopped_at = self._clock.monotonic()
        elif self._stopped_at is not None:
            self._started_at += self._clock.monotonic() - self._stopped_at
            self._stopped_at = None
        self.update_deadline()

    def _compute_work_left(self) -> float | None:
        """Return the seconds until the run's last turn must begin; None without a limit."""
        own = None if self._waits else self.time_left
        above = self._meter.find_time_above()
        if above is None:
            return own
        # Without an answer there is nothing to summarise, so the first one may take all the time.
        is_ending_held = above.holds_ending and self._answers
        ending = self._expect(self._answers) if is_ending_held else 0.0
        return choose_smaller(own, above.seconds - ending)

    def _expect(self, answers: tuple[float, ...]) -> float:
        """Return how long another answer may take, judging by these."""
        limit = self._meter.budget.seconds or 0.0
        return SLACK * max(answers) + min(_MAX_MARGIN, _MARGIN * limit)


def sum_worked_seconds(events: Iterable[StoredEvent], descendants: Iterable[StoredEvent]) -> float:
    """Return the seconds during which a process executed the run or a descendant.

    Time while the run was interrupted does not count.
    """
    all_events = [*events, *descendants]
    run_id = all_events[0].run
    seconds = 0.0
    last = all_events[0].at
    is_interrupted = False
    all_events.sort(key=attrgetter("at"))
    for event in all_events:
        if not (is_interrupted or (type(event) is RunResumed and event.run == run_id)):
            seconds += event.at - last
        last = event.at
        if type(event) is RunWaiting and event.run == run_id:
            is_interrupted = event.is_interrupted
        elif type(event) is MessageSent and event.run == run_id and event.message.sender == "user":
            is_interrupted = False
    return seconds


_MIN_INTERVAL = 0.5  # seconds between two checks


class WatchedCall:
    """An open model call. As a context manager it raises TimeoutError when the call is silent.

    It works like `asyncio.timeout`, but without a timer and two coroutines of its own. `silent_at`
    is a time of the event loop.
    """

    def __init__(self, watch: SilenceWatch, task: asyncio.Task[object] | None) -> None:
        self.silent_at = math.inf
        self._watch = watch
        self._task = task
        self._cancels_before = task.cancelling() if task else 0
        self._is_ended = False

    def __enter__(self) -> WatchedCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watch.close(self)
        if not self._is_ended or self._task is None:
            return
        is_only_cancel = self._task.uncancel() <= self._cancels_before
        if is_only_cancel and kind is asyncio.CancelledError:
            raise TimeoutError("the model fell silent") from None

    def extend(self, seconds: float) -> None:
        self.silent_at = self._watch.compute_deadline(seconds)

    def end(self) -> None:
        if self._task is not None and not self._is_ended:
            self._is_ended = True
            self._task.cancel()


class SilenceWatch:
    """Open model calls.

    One timer per call would have to be moved with each chunk, which is slower.
    """

    def __init__(self) -> None:
        self._calls: set[WatchedCall] = set()
        self._check_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch_call(self, seconds: float) -> WatchedCall:
        """Return a context manager for a call of the current task, silent after these seconds."""
        if self._loop is None:
            # Kept, because finding the loop takes a system call.
            self._loop = asyncio.get_running_loop()
        call = WatchedCall(self, asyncio.current_task(self._loop))
        self._calls.add(call)
        call.extend(seconds)
        return call

    def compute_deadline(self, seconds: float) -> float:
        """Return the time of the event loop after some seconds, at which a check is planned."""
        loop = self._loop
        assert loop is not None
        silent_at = loop.time() + seconds
        if silent_at < self._check_at:
            self._check_later(loop, silent_at)
        return silent_at

    def close(self, call: WatchedCall) -> None:
        self._calls.discard(call)

    def _check_later(self, loop: asyncio.AbstractEventLoop, silent_at: float) -> None:
        check_at = max(silent_at, loop.time() + _MIN_INTERVAL)
        if check_at >= self._check_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = check_at
        self._timer = loop.call_at(check_at, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_at = math.inf
        now = loop.time()
        for call in self._calls:
            if now >= call.silent_at:
                call.end()
        if self._calls:
            self._check_later(loop, min(call.silent_at for call in self._calls))
