"""Briefs of runs without a parent: prompts, tasks and scopes."""

from __future__ import annotations

from typing import Any

from .._core.agents import Agent, choose_child_model
from .._core.budgets import Budget, limit_turns
from .._core.messages import ImageBlock
from .._core.runs import Brief, Check
from .._core.tool_names import narrow_server_patterns
from .._core.type_checks import check_type
from .._engine.children.child_brief import narrow_tools
from .._engine.meters.session_meter import SessionMeter
from ..errors import UsageError
from .agent_catalog import find_agent
from .build import SessionResources
from .conversation_state import ConversationState
from .options import SessionOptions
from .prompts import PromptContent


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
        # `run_brief` limits it again; here its depth decides which tools the run has.
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
