"""Simulation of one session: a parent and its children, on one process or on worker processes."""

from __future__ import annotations

from functools import partial
from random import Random

from msgspec import Struct
from msgspec.structs import asdict

from .events import Clock, GroupServer, RateLimit, Server


class Costs(Struct, frozen=True, kw_only=True):
    """Measured costs; see `benchmarks.simulation.measure`.

    All times are seconds for which the event loop of a process works: its CPU time, and its waits
    for the interpreter lock, which the threads of the journal and of files hold meanwhile.

    Arguments:
        session: what a session costs without children.
        child: start and end of a child in the process of the session.
        request: a request of a child in one process, its tool call and its events included.
        home_child, home_request: what the session's process does for a child and a request that
            worker processes execute.
        worker_request: what a worker process does for a request; CPU time.
        commit, commit_event: a commit of the journal, and each event in it; wall time.
    """

    session: float
    child: float
    request: float
    home_child: float
    home_request: float
    worker_request: float
    commit: float
    commit_event: float

    def scale(self, factor: float) -> Costs:
        """Return the costs on a machine that takes this many times as long."""
        return Costs(**{name: cost * factor for name, cost in asdict(self).items()})


class Workload(Struct, frozen=True, kw_only=True):
    """Children to simulate.

    Arguments:
        children: their number. turns: turns with a tool call; each child ends with one more.
        at_once: most children that live at the same time.
        answer: seconds until the model answers. spread: sigma of a lognormal spread, 0 for none.
        workers: worker processes with a core each; 0 executes all in the session's process.
        rate: requests per second that the provider accepts; 0 for no limit.
    """

    children: int
    turns: int = 3
    at_once: int = 1_000
    answer: float = 1.0
    spread: float = 0.0
    workers: int = 0
    rate: float = 0.0


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of a simulation.

    Arguments:
        wall: seconds. most: most children at the same time.
        home, worker, journal, provider: share of the time in which each was busy; of the workers
            the busiest one.
    """

    wall: float
    most: int
    home: float
    worker: float
    journal: float
    provider: float

    @property
    def busiest(self) -> str:
        """Name of the part that is busy for the largest share of the time."""
        shares = {
            "session's process": self.home,
            "a worker process": self.worker,
            "journal": self.journal,
            "rate limit of the provider": self.provider,
        }
        return max(shares, key=shares.__getitem__)


_EVENTS_PER_REQUEST = 4
"""Events that a request of a child adds to the journal."""


class _Simulation:
    """The session while it is simulated."""

    def __init__(self, workload: Workload, costs: Costs, seed: int) -> None:
        self._workload = workload
        self._costs = costs
        self._random = Random(seed)
        self.clock = Clock()
        self.home = Server(self.clock)
        self.workers = [Server(self.clock) for _ in range(workload.workers)]
        self.journal = GroupServer(
            self.clock, costs.commit, costs.commit_event * _EVENTS_PER_REQUEST
        )
        self.provider = RateLimit(self.clock, workload.rate)
        self._left = workload.children
        self._alive = 0
        self.most = 0

    def run(self) -> None:
        self.home.work(self._costs.session / 2, self._wait_for_parent)
        self.clock.run()

    def _wait_for_parent(self) -> None:
        self.clock.call_at(self.clock.now + self._workload.answer, self._start_children)

    def _start_children(self) -> None:
        while self._left and self._alive < self._workload.at_once:
            self._left -= 1
            self._alive += 1
            self.most = max(self.most, self._alive)
            cost = self._costs.home_child if self.workers else self._costs.child
            self.home.work(cost / 2, partial(self._request, self._left, self._workload.turns))

    def _request(self, child: int, turns: int) -> None:
        """Prepare a request, wait for the model, work on the answer and store its events."""
        if self.workers:
            executor, cost = self.workers[child % len(self.workers)], self._costs.worker_request
        else:
            executor, cost = self.home, self._costs.request
        ask = partial(
            self.provider.enter, partial(self._wait_for_model, executor, cost, child, turns)
        )
        executor.work(cost / 2, ask)

    def _wait_for_model(self, executor: Server, cost: float, child: int, turns: int) -> None:
        answer = self._workload.answer
        if self._workload.spread:
            answer *= self._random.lognormvariate(0.0, self._workload.spread)
        receive = partial(executor.work, cost / 2, partial(self._store, child, turns))
        self.clock.call_at(self.clock.now + answer, receive)

    def _store(self, child: int, turns: int) -> None:
        proceed = partial(self._end_turn, child, turns)
        if self.workers:
            to_journal = partial(self.journal.work, proceed)
            self.home.work(self._costs.home_request, to_journal)
        else:
            self.journal.work(proceed)

    def _end_turn(self, child: int, turns: int) -> None:
        if turns:
            self._request(child, turns - 1)
            return
        cost = self._costs.home_child if self.workers else self._costs.child
        self.home.work(cost / 2, self._end_child)

    def _end_child(self) -> None:
        self._alive -= 1
        self._start_children()
        if not self._alive:
            self.clock.call_at(self.clock.now + self._workload.answer, self._end)

    def _end(self) -> None:
        self.home.work(self._costs.session / 2, lambda: None)


def simulate(workload: Workload, costs: Costs, seed: int = 1) -> Outcome:
    """Simulate a session and return how long it takes and what is busy.

    Arguments:
        seed: of the spread of the answers.
    """
    simulation = _Simulation(workload, costs, seed)
    simulation.run()
    wall = simulation.clock.now
    return Outcome(
        wall=wall,
        most=simulation.most,
        home=simulation.home.busy / wall,
        worker=max((worker.busy for worker in simulation.workers), default=0.0) / wall,
        journal=simulation.journal.busy / wall,
        provider=simulation.provider.busy / wall,
    )
