"""Briefs of root runs (prompts, tasks and scopes), and the meter above these runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .._core.agents import Agent, choose_child_model
from .._core.budgets import SHARED_LIMITS, Budget, Limit, LimitState, choose_smaller, limit_turns
from .._core.messages import ImageBlock, Usage
from .._core.ports import Clock
from .._core.runs import Brief, Check
from .._core.tool_names import narrow_server_patterns
from .._core.type_checks import check_type
from .._engine.children.child_brief import narrow_tools
from .._engine.meters.meter import Meter
from .._engine.meters.run_timer import RunTimer
from ..errors import UsageError
from .agent_catalog import find_agent
from .build import SessionResources
from .conversation_state import ConversationState
from .options import SessionOptions
from .prompts import PromptContent

if TYPE_CHECKING:
    from .._projections.open_events import OpenEvents


class SessionMeter(Meter):
    """The meter above the runs that a caller starts: prompts, tasks and scopes.

    It counts their turns, and the time during which at least one of them is working.
    """

    is_run = False

    def __init__(self, budget: Budget, clock: Clock) -> None:
        super().__init__(budget)
        self._timer = RunTimer(clock, self)
        self._working = 0
        self.set_paused(True)

    @property
    def has_shared_limits(self) -> bool:
        """True if the session has any limit, since all of them also apply to its runs."""
        budget = self.budget
        is_timed = budget.turns is not None or budget.seconds is not None
        return is_timed or bool(self.accounts)

    def start_time(self) -> None:
        """Count time until `stop_time`, once however many runs are working."""
        if not self._working:
            self.set_paused(False)
        self._working += 1

    def stop_time(self) -> None:
        """Stop counting time if no other run is working."""
        self._working -= 1
        if not self._working:
            self.set_paused(True)

    def limit_budget(self, requested: Budget, depth: int) -> Budget:
        """Limit a run's budget to what the session has left.

        `depth` is the run's level: 0 for a prompt, 1 for a task or scope.
        """
        own = self.budget
        children_left = None if own.children is None else max(0, own.children - self.children)
        turns_left = None if own.turns is None else max(0, own.turns - self.turns)
        levels_left = None if own.depth is None else max(0, own.depth - depth)
        amounts: dict[str, Any] = {}
        for limit in SHARED_LIMITS:
            left = self.compute_amount_left(limit)
            if left is not None:
                amount: float | None = getattr(requested, limit)
                amounts[limit] = choose_smaller(amount, max(0, left))
        limited = replace(
            requested,
            turns=choose_smaller(requested.turns, turns_left),
            seconds=choose_smaller(requested.seconds, self._timer.time_left),
            children=choose_smaller(requested.children, children_left),
            depth=choose_smaller(requested.depth, levels_left),
            **amounts,
        )
        # By default a prompt may start one level of children, tasks and scopes none.
        return limited.with_defaults(Budget(depth=1 - depth))

    def add_child_turns(self, count: int) -> None:
        self.turns += count

    def list_shared_limits(self) -> Iterator[LimitState]:
        yield from super().list_shared_limits()
        if self.budget.turns is not None:
            yield LimitState(Limit.TURNS, self.budget.turns, self.turns)
        if self._timer.limit is not None:
            yield self._timer.limit

    def find_shared_limit(self, fraction: float) -> LimitState | None:
        # Without warnings, because each run warns of its own limits.
        return super().find_shared_limit(fraction) if fraction >= 1 else None

    def add_past(self, recorded: OpenEvents, unfinished: Collection[str]) -> None:
        """Add what earlier processes spent.

        The runs in `unfinished` continue, and add their own spending.
        """
        past = recorded.amounts
        for event in recorded.events:
            if event.run not in unfinished:
                past.apply(event)
        self.charge(past.usage, past.usd, past.estimate)
        if not past.is_price_known:
            self.charge(Usage(), None)
        self.add_turns(past.turns)
        self.add_usage(Usage(), 0.0, children=past.children)
        self._timer.add_past(recorded.time.seconds)


class BriefMaker:
    def __init__(
        self,
        resources: SessionResources,
        options: SessionOptions,
        conversation: ConversationState,
        meter: SessionMeter,
    ) -> None:
        self._resources = resources
        self._options = options
        self._conversation = conversation
        self._meter = meter

    def continue_conversation(
        self, prompt: PromptContent, agent: Agent, budget: Budget, model: str = ""
    ) -> Brief:
        return self.make_brief(
            prompt,
            agent,
            model or self._resources.model,
            budget,
            has_own_model=bool(model),
            continues=self._conversation.latest_run,
            history=self._conversation.messages,
        )

    def make_task_brief(
        self,
        prompt: PromptContent,
        agent: Agent,
        budget: Budget | None,
        model: str | None = None,
        description: str = "",
        check: str = "",
        *,
        confirm_check: bool = False,
        key: str = "",
    ) -> Brief:
        check_type("budget", budget, Budget | None, "task")
        check_type("model", model, str | None, "task")
        check_type("description", description, str, "task")
        check_type("check", check, str, "task")
        check_type("key", key, str, "task")
        services = self._resources.services
        limits = (budget or Budget()).with_defaults(agent.budget)
        limits = limits.with_defaults(limit_turns(services.children.turns))
        resolved = self.resolve_model(agent, model)
        more: dict[str, Any] = {"description": description, "depth": 1, "key": key}
        if check:
            more["check"] = Check(
                check, services.isolation.check_seconds, is_from_user=not confirm_check
            )
        return self.make_brief(prompt, agent, resolved, limits, **more)

    def make_brief(
        self,
        prompt: PromptContent,
        agent: Agent,
        model: str,
        budget: Budget,
        *,
        depth: int = 0,
        **more: Any,
    ) -> Brief:
        self._check_images(prompt, model)
        # `run_brief` limits it again; its depth is needed here to choose the tools.
        budget = self._meter.limit_budget(budget, depth)
        mode = self._options.permissions.mode
        return Brief(
            run_id=self._conversation.make_run_id(),
            agent=agent,
            prompt=prompt.text,
            content=prompt.blocks,
            tools=self._choose_tools(agent, budget, is_root=depth == 0),
            model=model,
            budget=budget,
            depth=depth,
            mode=(agent.mode or mode).limit_to(mode),
            **more,
        )

    def _choose_tools(self, agent: Agent, budget: Budget, *, is_root: bool) -> tuple[str, ...]:
        services = self._resources.services
        tools = narrow_tools(
            services.toolbox, agent.tools, may_have_children=bool(budget.depth), is_root=is_root
        )
        servers = services.servers.patterns if services.servers else ()
        return (*tools, *narrow_server_patterns(servers, agent.tools))

    def _check_images(self, prompt: PromptContent, model: str) -> None:
        has_image = any(isinstance(block, ImageBlock) for block in prompt.blocks)
        if has_image and (refusal := self._resources.models.explain_refused_images(model)):
            raise UsageError(
                f"the prompt has an image, but {refusal}",
                remedy="Use a model that takes images, or --takes-images if this one does.",
            )

    def resolve_model(self, agent: Agent, requested: str | None = None) -> str:
        """Return the model string of a run; `requested` replaces the agent's model."""
        name = agent.model if requested is None else requested
        if name != "inherit":
            return self._resources.models.get_model(name).name
        rules = self._resources.services.child_models
        return choose_child_model(rules, agent.name, self._resources.model)

    def select_agent(self, agent: str | Agent) -> Agent:
        check_type("agent", agent, str | Agent)
        if isinstance(agent, Agent):
            return agent
        return find_agent(agent, self._resources.services.agents)
