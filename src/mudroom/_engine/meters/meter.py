"""Meter: compares a run's spending with its own limits and those of the runs above it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from msgspec import Struct

from ..._core.budgets import SHARED_LIMITS, Budget, Limit, LimitState, choose_smaller, limit_budget
from ..._core.messages import NO_USAGE, Usage
from ...errors import BudgetExceeded
from .account import Account, Admission, Permit, RequestPlan, compute_cost
from .pool import Member, Pool

WARNING_FRACTION = 0.9  # of a limit; a run that has used this much is warned
_orders = count()  # numbers meters as they are opened

NEAR_LIMIT = (
    "You have used 90 % of your {limit}. Come to an end: finish what matters most, then report."
)


class Meter:
    """Tokens, money, turns and children of one run.

    Tokens, money and children also count for every ancestor, so an ancestor's limit applies to all
    runs below it. Amounts granted to a child stay reserved in its ancestors until `release`.

    Attributes:
        accounts: this run's limits of tokens and money, which also apply to the runs below it.
        estimate: tokens and price of cut-off answers, of this run and those below it.
        member: what this run's pools, and those above it, know about it.
        permit: the run's last request, if a limit applies to it.
        timer: the run's clock, while this process executes it.
        is_run: false for the meter of a session.
    """

    __slots__ = (
        "_granting",
        "accounts",
        "budget",
        "children",
        "descendant_usage",
        "estimate",
        "has_warned",
        "is_price_known",
        "member",
        "parent",
        "permit",
        "pool",
        "timer",
        "turns",
        "usage",
        "usd",
    )

    is_run = True

    def __init__(self, budget: Budget, parent: Meter | ParentMeter | None = None) -> None:
        self.parent = parent
        self.member = Member(next(_orders))
        self.accounts: dict[Limit, Account] = {}
        self.pool: Pool | None = None
        self.permit: Permit | None = None
        self.turns: int = 0
        self.children = 0
        self.usage = NO_USAGE
        self.descendant_usage = NO_USAGE
        self.estimate = NO_USAGE
        self.usd = 0.0
        self.is_price_known = True
        self.timer: MeterTimer | None = None
        self.has_warned = False
        self._granting: dict[Limit, Account] | None = None
        self.set_limits(budget)

    def set_limits(self, budget: Budget) -> None:
        self._change_granted(-1)
        before = self.accounts
        self.budget = budget
        self.accounts = {}
        for limit in SHARED_LIMITS:
            if (maximum := getattr(budget, limit)) is not None:
                # Open requests hold amounts in the existing accounts.
                account = before.get(limit) or Account(limit, maximum, self._sum_spent(limit))
                account.maximum = maximum
                self.accounts[limit] = account
        if self.pool is not None:
            self.pool.accounts = self.accounts
        elif self.accounts:
            self.pool = Pool(self.accounts)
        self._change_granted(1)
        for run in [*self.pool.runs][:1] if self.pool is not None else ():
            run.member.tell()  # a larger limit may admit waiting requests

    def _sum_spent(self, limit: Limit) -> float:
        if limit is Limit.USD:
            return self.usd + (self.estimate.usd or 0.0)
        known = getattr(self.usage, limit) + getattr(self.descendant_usage, limit)
        return known + getattr(self.estimate, limit)

    @property
    def has_shared_limits(self) -> bool:
        """True if a limit, here or above, also applies to the runs below it."""
        if self.accounts or self.parent is None:
            return bool(self.accounts)
        return self.parent.has_shared_limits

    @property
    def is_new(self) -> bool:
        # A summary run counts as begun, like the run whose place it takes. As a new run it would
        # wait for younger runs, which wait for it.
        return not (self.turns or self.member.is_part)

    @contextmanager
    def lend_share(self) -> Generator[None]:
        """Inside the `with` block, let other runs use what this one was expected to need."""
        self.member.start_wait()
        try:
            yield
        finally:
            self.member.waits -= 1

    def allocate(self, requested: Budget, seconds: float = 0.0) -> Meter:
        """Make a meter for a child of a run that is `seconds` old, reserving what it requests.

        Counts only in this process's meters; see `Meters.allocate`. Raises BudgetExceeded, naming
        the limit that does not suffice.
        """
        self.check_children()
        if self.has_shared_limits:
            for limit in SHARED_LIMITS:
                self._check_amount(limit, getattr(requested, limit))
        self.add_children(1)
        return self._open_child(self._limit_child_budget(requested, seconds))

    def reopen_child(self, budget: Budget) -> Meter:
        """Make a meter for a child with its recorded budget, without checking anything."""
        self.add_usage(Usage(), 0.0, children=1)
        return self._open_child(budget)

    def _open_child(self, budget: Budget) -> Meter:
        child = Meter(budget, self)
        child._granting = {}
        child._change_granted(1)
        return child

    def withdraw(self) -> None:
        """Uncount a child that did not begin."""
        self.add_usage(NO_USAGE, 0.0, children=-1)

    def end_request(self) -> None:
        """End the run's open request, if there is one."""
        if self.permit is not None:
            self.permit.end()

    def walk_up(self) -> Iterator[Meter]:
        """Yield this meter and those above it in this process."""
        meter: Meter | ParentMeter | None = self
        while isinstance(meter, Meter):
            yield meter
            meter = meter.parent

    def find_remote_parent(self) -> ParentMeter | None:
        """Find the meters above in another process; None if there are none."""
        *_, top = self.walk_up()
        return None if isinstance(top.parent, Meter) else top.parent

    def find_remote_limits(self) -> ParentMeter | None:
        """Find the meters above in another process; None if they have no limits."""
        remote = self.find_remote_parent()
        return remote if remote is not None and remote.has_shared_limits else None

    def release(self) -> None:
        """Return the amounts reserved and held for this run."""
        self._change_granted(-1)
        self._granting = None
        for meter in self.walk_up():
            if meter.pool is not None:
                meter.pool.close_run(self)
        self.timer = None  # breaks a reference cycle, so the run's memory is free at once
        self.member.free()

    def get_grant(self, limit: Limit) -> float | None:
        """Return the unspent part of what the meters above reserve for this run.

        None if they reserve nothing, because the run shares their limits.
        """
        account = self.accounts.get(limit)
        return None if account is None or self._granting is None else max(0, account.unspent)

    def _change_granted(self, sign: int) -> None:
        """Grant this run's unspent amounts (sign 1), or take them back (sign -1).

        An ancestor with its own limit has already been granted that by the meters above it.
        """
        if self._granting is None or not self.accounts:
            return
        _, *ancestors = self.walk_up()
        for limit in self.accounts:
            if limit not in self._granting:
                accounts = (meter.accounts.get(limit) for meter in ancestors)
                above = next(filter(None, accounts), None) if sign > 0 else None
                if above is None:
                    continue
                # Limits above may be replaced later; the grant must go back where it came from.
                self._granting[limit] = above
            self._granting[limit].granted += sign * (self.get_grant(limit) or 0)

    def _check_amount(self, limit: Limit, requested: float | None) -> None:
        left = self.compute_amount_left(limit)
        if left is None:
            return
        if left <= 0 or (requested is not None and requested > left):
            amount = "some" if requested is None else f"{requested:,.7g}"
            raise BudgetExceeded(f"{limit}: {amount} requested, {max(left, 0):,.7g} left")

    def _limit_child_budget(self, requested: Budget, seconds: float) -> Budget:
        own = self.budget
        time_left = None if own.seconds is None else max(0.0, own.seconds - seconds)
        depth_left = None if own.depth is None else max(0, own.depth - 1)
        return limit_budget(requested, time_left, depth_left)

    def add_turns(self, count: int) -> None:
        """Count turns of this run, here and in the meter just above."""
        self.turns += count
        if self.parent is not None:
            self.parent.add_child_turns(count)

    def add_child_turns(self, count: int) -> None:
        """Do nothing: only a session counts turns of the runs below."""

    def charge(self, usage: Usage, usd: float | None = 0.0, estimate: Usage = NO_USAGE) -> None:
        """Add this run's tokens and money, here and to every ancestor; see `add_usage`."""
        self.usage += usage
        self._add_costs(usage, usd, estimate)
        if self.parent is not None:
            self.parent.add_usage(usage, usd, 0, estimate)

    def add_usage(
        self, usage: Usage, usd: float | None, children: int = 0, estimate: Usage = NO_USAGE
    ) -> None:
        """Add what descendants spent, here and to every ancestor.

        `usd` is None if the price is unknown. `estimate` has the tokens and price of cut-off
        answers.
        """
        self.descendant_usage += usage
        self.children += children
        self._add_costs(usage, usd, estimate)
        if self.parent is not None:
            self.parent.add_usage(usage, usd, children, estimate)

    def learn(self, usage: Usage, usd: float | None) -> None:
        """Expect future requests to cost what this one did."""
        if not self.has_shared_limits:
            return
        costs = {limit: compute_cost(limit, usage, usd) for limit in SHARED_LIMITS}
        for meter in self.walk_up():
            if meter.pool is not None:
                meter.pool.learn(self, costs, usage)

    def _add_costs(self, usage: Usage, usd: float | None, estimate: Usage) -> None:
        if self.accounts:
            self._change_granted(-1)
        if estimate != NO_USAGE:
            self.estimate += estimate
        if usd is None:
            self.is_price_known = False
        else:
            self.usd += usd
        if self.accounts:
            for limit, account in self.accounts.items():
                account.spent += compute_cost(limit, usage, usd)
                if estimate != NO_USAGE:
                    account.spent += compute_cost(limit, estimate, estimate.usd)
            self._change_granted(1)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Inside the `with` block, stop the clocks of this run and its ancestors."""
        self.set_paused(True)
        try:
            with self.lend_share():
                yield
        finally:
            self.set_paused(False)

    def set_paused(self, paused: bool) -> None:
        """Stop or restart the clocks of this run and its ancestors; calls nest."""
        if self.timer is not None:
            self.timer.set_paused(paused)
        if self.parent is not None:
            self.parent.set_paused(paused)

    def find_time_below(self) -> SharedTime | None:
        return self.timer.find_time_below() if self.timer is not None else None

    def find_time_above(self) -> SharedTime | None:
        """Return the time that the runs above leave to this one; None for a summary run."""
        if self.parent is None or self.member.is_part:
            return None
        return self.parent.find_time_below()

    def learn_seconds(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.learn_below(seconds)

    def find_exceeded_limit(self, seconds: float = 0.0) -> LimitState | None:
        """Find the first used-up limit of this run or an ancestor. `seconds`: the run's age."""
        return self._find_own_limit(1.0, seconds, self.turns) or self.find_shared_limit(1.0)

    def take_warning(self, seconds: float = 0.0) -> LimitState | None:
        """Return, only once, the first limit of which WARNING_FRACTION is used.

        The turn about to begin is counted but not used. Its request has a permit if a shared limit
        applies.
        """
        if self.has_warned:
            return None
        state = self._find_own_limit(WARNING_FRACTION, seconds, self.turns - 1)
        if state is None and self.permit is not None:
            state = self.find_shared_limit(WARNING_FRACTION)
        self.has_warned = state is not None
        return state

    def _find_own_limit(self, fraction: float, seconds: float, turns: int) -> LimitState | None:
        budget = self.budget
        if budget.turns is not None and is_used(turns, budget.turns, fraction):
            return LimitState(Limit.TURNS, budget.turns, turns)
        if budget.seconds is not None and is_used(seconds, budget.seconds, fraction):
            return LimitState(Limit.SECONDS, budget.seconds, seconds)
        return None

    def find_passed_limit(self) -> LimitState | None:
        """Find a shared limit, here or above, that is exceeded."""
        state = self.find_shared_limit(1.0)
        return state if state and state.spent > state.maximum else None

    def list_shared_limits(self) -> Iterator[LimitState]:
        """Yield this run's limits that also apply to its descendants."""
        for account in self.accounts.values():
            yield account.state

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        """Find the first shared limit, here or above, of which this fraction is used."""
        if not self.has_shared_limits:
            return None
        for state in self.list_shared_limits():
            if is_used(state.spent, state.maximum, fraction):
                return state
        return self.parent.find_shared_limit(fraction) if self.parent else None

    def has_others_below(self, state: LimitState) -> bool:
        """Return whether other runs that share this limit have begun."""
        for meter in self.walk_up():
            account = meter.accounts.get(state.name)
            if account and account.maximum == state.maximum and meter.pool:
                return any(run is not self for run in meter.pool.runs)
        return True

    def compute_amount_left(self, limit: Limit) -> float | None:
        """Return how much of a shared limit this run may still spend; None without a limit.

        Amounts granted to running children are not included.
        """
        if not self.has_shared_limits:
            return None
        above = self.parent.compute_amount_left(limit) if self.parent is not None else None
        account = self.accounts.get(limit)
        if account is None:
            return above
        if above is not None:
            above += self.get_grant(limit) or 0
        return choose_smaller(account.left, above)

    def check_children(self) -> None:
        """Raise BudgetExceeded if a meter in this process allows no more children."""
        for meter in self.walk_up():
            maximum = meter.budget.children
            if maximum is not None and meter.children >= maximum:
                raise BudgetExceeded(f"the budget of {maximum} children is used up")

    def add_children(self, count: int) -> None:
        for meter in self.walk_up():
            meter.children += count


def is_used(spent: float, maximum: float, fraction: float) -> bool:
    return spent >= maximum * fraction


class SharedTime(Struct, frozen=True):
    """The time a run or session leaves to the runs below it."""

    seconds: float  # until they must have ended; negative once it is over
    holds_ending: bool = True  # the last turn must fit into that time; below a session it follows
    answer: float | None = None  # expected seconds of their answers; None before the first


class MeterTimer(Protocol):
    """The clock of a meter's run; see `RunTimer`."""

    def set_paused(self, paused: bool) -> None: ...

    def find_time_below(self) -> SharedTime | None: ...

    def learn_below(self, seconds: float) -> None: ...


class ParentMeter(Protocol):
    """The meters above a run, in another process; see `Meter`."""

    def add_child_turns(self, count: int) -> None: ...

    def add_usage(
        self, usage: Usage, usd: float | None, children: int = 0, estimate: Usage = NO_USAGE
    ) -> None: ...

    def find_shared_limit(self, fraction: float) -> LimitState | None: ...

    @property
    def has_shared_limits(self) -> bool:
        """True if there are shared limits, here or above. It does not change while runs work."""
        ...

    def compute_amount_left(self, limit: Limit) -> float | None: ...

    async def add_child(self) -> None:
        """Count a starting child. Raise BudgetExceeded if no more may start."""
        ...

    def set_paused(self, paused: bool) -> None: ...

    def find_time_below(self) -> SharedTime | None: ...

    def learn_seconds(self, seconds: float) -> None: ...

    async def admit(self, plan: RequestPlan, *, is_own: bool) -> Admission:
        """Wait until the limits above allow a request, and count its turn; see `RequestGate`.

        `is_own`: the request comes from the run directly below.
        """
        ...

    def end_request(self, number: int) -> None:
        """End the request whose admission has this number."""
        ...
