"""Events as stream-json lines, in the shapes that clients of other terminal agents read.

mudroom's additional fields never replace a field of these shapes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from .._core.agents import Agent
from .._core.budgets import Limit
from .._core.events import (
    AnyEvent,
    Delta,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
    PermissionDecided,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
)
from .._core.messages import ToolCallBlock, Usage, append_placeholders
from .._core.ports import Sandbox, ServerStatus
from .._core.ports.servers import ServerState
from .._core.runs import Brief, Reason, Report
from .._version import __version__
from .anthropic_shapes import to_anthropic_message, to_anthropic_stop_reason, to_anthropic_usage
from .cache_use import CacheUseFold

# The last line's subtype by limit, else by reason.
_SUBTYPES: dict[Reason | Limit, str] = {
    Reason.GOAL: "success",
    Reason.MAX_TURNS: "error_max_turns",
    Reason.BUDGET: "error_max_budget_usd",
    Limit.INPUT_TOKENS: "error_max_tokens",
    Limit.OUTPUT_TOKENS: "error_max_tokens",
    Limit.TOTAL_TOKENS: "error_max_tokens",
}

_STATUS = {Reason.GOAL: "completed", Reason.CANCELLED: "stopped"}
_TERMINAL = {Reason.GOAL: "completed", Reason.CANCELLED: "aborted_streaming"}
_SERVER_STATES: dict[ServerState, str] = {
    "not started": "pending",
    "starting": "pending",
    "ready": "connected",
    "failed": "failed",
}
_DELTA_SUBTYPES = {"progress": "tool_progress", "waiting": "limit_wait"}


class _ModelUse(Struct):
    priced_as: str = ""
    requests: list[Usage] = field(default_factory=list[Usage])


class _Run:
    def __init__(self, brief: Brief, at: float) -> None:
        self.brief = brief
        self.started_at = at
        self.tool_count = 0
        self.usage = Usage()
        self.stop = ""
        self.calls: tuple[ToolCallBlock, ...] = ()
        self.is_in_background = False
        self.has_ended = False
        # The calls of running background commands, by command id.
        self.commands: dict[str, str] = {}


class ListedServers(Protocol):
    @property
    def servers(self) -> Sequence[ServerStatus]: ...


class OpenSession(Protocol):
    """The parts of a session shown in the first line."""

    @property
    def id(self) -> str: ...
    @property
    def cwd(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def tools(self) -> Sequence[str]: ...
    @property
    def agents(self) -> Sequence[Agent]: ...
    @property
    def sandbox(self) -> Sandbox: ...
    @property
    def output_style(self) -> str: ...
    @property
    def mcp(self) -> ListedServers: ...


class StreamJson:
    """Folds one session's events into the lines of `--output-format stream-json`.

    Arguments:
        session: id of the session.
        cwd: working directory.
        model: model string.
        tools, agents: names of the available tools and agents.
        sandbox: tier of the sandbox.
        mode: permission mode. output_style: name of the output style.
        servers: states of the MCP servers.
        cost: returns US dollars for a model string and its usage; None if the price is unknown.
        new_id: returns the `uuid` of a line.

    Example:
        import msgspec

        lines = StreamJson.of_session(session, cost=calculate_cost)
        ledger = LedgerBuilder()
        print(lines.make_init_line())

        def show(event: AnyEvent) -> None:
            ledger.apply(event)
            for line in lines.make_event_lines(event):
                print(line)

        session.watch(show)
        report = await session.run("Which testing framework does this project use?")
        print(lines.make_result_line(report, msgspec.to_builtins(ledger.ledger)))
    """

    def __init__(
        self,
        *,
        session: str,
        cwd: str,
        model: str,
        tools: Sequence[str],
        agents: Sequence[str],
        sandbox: str = "",
        mode: str = "default",
        output_style: str = "default",
        servers: Sequence[ServerStatus] = (),
        cost: Callable[[str, Usage], float | None] = lambda model, usage: None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._session = session
        self._cost = cost
        self._new_id = new_id
        self._session_fields = {
            "cwd": cwd,
            "model": model,
            "tools": list(tools),
            "agents": list(agents),
            "sandbox": sandbox,
            "permissionMode": mode,
            "output_style": output_style,
            "mcp_servers": [
                {"name": status.name, "status": get_claude_state(status)} for status in servers
            ],
        }
        self._runs: dict[str, _Run] = {}
        self._models: dict[str, _ModelUse] = {}
        self._api_seconds = 0.0
        self._reports: list[Report] = []
        self._denials: list[dict[str, Any]] = []
        self._cache = CacheUseFold()

    @classmethod
    def of_session(
        cls,
        session: OpenSession,
        *,
        cost: Callable[[str, Usage], float | None],
        mode: str = "default",
    ) -> StreamJson:
        """Make the fold of an open session's events.

        Arguments:
            session: an open `Session`.
            cost: returns US dollars for a model string and its usage; None if the price is
                unknown.
            mode: permission mode.
        """
        return cls(
            session=session.id,
            cwd=session.cwd,
            model=session.model,
            tools=session.tools,
            agents=[agent.name for agent in session.agents],
            sandbox=session.sandbox.tier,
            mode=mode,
            output_style=session.output_style,
            servers=session.mcp.servers,
            cost=cost,
        )

    def start_prompt(self) -> None:
        """Begin the conversation's next prompt, whose last line has only its own children."""
        self._reports.clear()
        self._denials.clear()
        self._api_seconds = 0.0

    def make_init_line(self) -> dict[str, Any]:
        """Make the first line: `system/init`."""
        empty: dict[str, Any] = {name: [] for name in ("slash_commands", "skills", "plugins")}
        fixed = {"apiKeySource": "none", "mudroom_version": __version__}
        return self._make_line("system", subtype="init", **self._session_fields, **empty, **fixed)

    def make_event_lines(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the lines for one event, often none."""
        self._cache.apply(event)
        if isinstance(event, RunStarted):
            yield from self._start_run(event)
            return
        run = self._runs.get(event.run)
        if run is None:
            return
        match event:
            case TurnFinished():
                yield self._make_assistant_line(run, event)
            case PermissionDecided(allowed=False):
                self._denials += self._list_denials(run, event)
            case ToolCallFinished():
                yield from self._make_result_lines(run, event)
            case NoteInjected():
                yield self._make_user_line(
                    run,
                    [{"type": "text", "text": event.text}],
                    isSynthetic=True,
                    origin={"kind": event.origin},
                )
            case ModelCallRetried() | Delta() | MessageSent():
                yield from self._make_system_lines(run, event)
            case RunFinished() if not run.has_ended:
                yield from self._finish_run(run, event)
            case _:
                pass

    def _make_system_lines(
        self, run: _Run, event: ModelCallRetried | Delta | MessageSent
    ) -> Iterator[dict[str, Any]]:
        if isinstance(event, ModelCallRetried):
            yield self._make_line(
                "system",
                subtype="api_retry",
                attempt=event.attempt,
                max_retries=None,
                retry_delay_ms=round(event.delay * 1000),
                error_status=event.status or None,
                error=event.error,
                **_make_place_fields(run),
            )
        elif isinstance(event, MessageSent):
            call_id = run.commands.pop(event.message.sender, "")
            if fields := make_end_fields(event, call_id):
                yield self._make_line("system", **fields, **_make_place_fields(run))
        elif event.kind.startswith("search_"):
            fields = {"text": event.text, **_make_place_fields(run)}
            status = "started" if event.kind == "search_start" else "finished"
            yield self._make_line("system", subtype="web_search", status=status, **fields)
        elif subtype := _DELTA_SUBTYPES.get(event.kind):
            fields = {"text": event.text, **_make_place_fields(run)}
            yield self._make_line("system", subtype=subtype, **fields)

    def make_result_line(
        self, report: Report, ledger: Mapping[str, Any], *, has_value: bool = False
    ) -> dict[str, Any]:
        """Make the last line, which is also the whole output of `--output-format json`.

        Arguments:
            report: report of the root run.
            ledger: the ledger as JSON values.
            has_value: true if the outputs of a run that reaches its goal are a value, even an empty
                one.
        """
        root = self._runs.get(report.run_id)
        # A failed run's outputs need not match the requested schema.
        has_value = report.ok and bool(has_value or report.outputs)
        error = [] if report.ok else [report.error or f"The run ended with {report.reason.value}."]
        outcome: dict[str, Any] = {"errors": error} if error else {}
        if report.ok or report.text:
            outcome["result"] = report.text  # besides errors: the part that was done
        return self._make_line(
            "result",
            subtype=_find_subtype(report),
            is_error=not report.ok,
            **outcome,
            **({"structured_output": report.outputs} if has_value else {}),
            duration_ms=round(report.seconds * 1000),
            duration_api_ms=round(self._api_seconds * 1000),
            num_turns=report.turns,
            stop_reason=(root.stop if root else "") or None,
            terminal_reason=_TERMINAL.get(report.reason, report.reason.value.lower()),
            total_cost_usd=report.usd,
            usage=to_anthropic_usage(root.usage if root else Usage()),
            modelUsage={
                model: _encode_model_usage(use, self._cost) for model, use in self._models.items()
            },
            permission_denials=list(self._denials),
            reason=report.reason.value,
            report=self._encode_report(report),
            reports=[self._encode_report(child) for child in self._reports],
            ledger=dict(ledger),
        )

    def _encode_report(self, report: Report) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(msgspec.structs.asdict(report)),
            "usage": msgspec.structs.asdict(report.usage),
            "cache": msgspec.structs.asdict(self._cache.find_use(report.run_id)),
        }

    def _start_run(self, event: RunStarted) -> Iterator[dict[str, Any]]:
        brief = event.brief
        if brief.run_id in self._runs:
            return
        run = self._runs[brief.run_id] = _Run(brief, event.at)
        if brief.depth == 0:
            return
        run.is_in_background = self._is_in_background(brief)
        yield self._make_task_line(
            run,
            "task_started",
            description=_describe(brief),
            task_type="local_agent",
            is_backgrounded=run.is_in_background,
            prompt=brief.prompt,
        )
        yield self._make_user_line(run, [{"type": "text", "text": brief.prompt}])

    def _is_in_background(self, brief: Brief) -> bool:
        parent = self._runs.get(brief.parent)
        return bool(brief.message_ids) or any(
            call.arguments.get("background") or call.arguments.get("run_in_background")
            for call in (parent.calls if parent else ())
            if call.id == brief.call_id
        )

    def _make_assistant_line(self, run: _Run, event: TurnFinished) -> dict[str, Any]:
        message = event.message
        model = message.model or run.brief.model
        run.usage += message.usage
        run.stop = to_anthropic_stop_reason(message)
        run.calls = message.tool_calls
        use = self._models.setdefault(model, _ModelUse())
        use.priced_as = message.answered_by or run.brief.model
        use.requests.append(message.usage)
        self._api_seconds += event.seconds
        content = to_anthropic_message(message, model, run.stop)
        return self._make_line("assistant", message=content, **_make_place_fields(run))

    def _list_denials(self, run: _Run, event: PermissionDecided) -> Iterator[dict[str, Any]]:
        for call in run.calls:
            if call.id == event.call_id:
                yield {
                    "tool_name": call.name,
                    "tool_use_id": call.id,
                    "tool_input": call.arguments,
                    "why": event.approver_reason or event.policy_reason,
                    "rule": event.rule,
                    **(_encode_child(run.brief) if run.brief.depth else {}),
                }

    def _make_result_lines(self, run: _Run, event: ToolCallFinished) -> Iterator[dict[str, Any]]:
        run.tool_count += 1
        block = {
            "type": "tool_result",
            "tool_use_id": event.call_id,
            "content": append_placeholders(event.result.text, event.result.images),
            **({"is_error": True} if event.result.error else {}),
        }
        yield self._make_user_line(run, [block])
        if fields := make_start_fields(event):
            run.commands[fields["task_id"]] = event.call_id
            yield self._make_line("system", **fields, **_make_place_fields(run))
        child = self._runs.get(event.result.detail.get("run", ""))
        if child and event.result.detail.get("background") and not child.is_in_background:
            child.is_in_background = True
            yield self._make_task_line(child, "task_updated", patch={"is_backgrounded": True})
        if run.brief.depth:
            yield self._make_task_line(
                run,
                "task_progress",
                description=_describe(run.brief),
                usage=_encode_task_usage(run, run.usage, event.at),
                last_tool_name=event.name,
            )

    def _finish_run(self, run: _Run, event: RunFinished) -> Iterator[dict[str, Any]]:
        """Yield the ends of a run's commands, which do not outlive it, and of a child."""
        run.has_ended = True
        for command, call_id in run.commands.items():
            yield self._make_line(
                "system",
                subtype="task_notification",
                task_id=command,
                tool_use_id=call_id,
                status="stopped",
                summary="The end of its run stopped it.",
                output_file="",
                **_make_place_fields(run),
            )
        if run.brief.depth:
            report = event.report
            self._reports.append(report)
            yield self._make_task_line(
                run,
                "task_notification",
                status=_STATUS.get(report.reason, "failed"),
                summary=report.text or report.error,
                output_file=report.spill,
                usage=_encode_task_usage(run, report.usage, event.at),
                reason=report.reason.value,
                is_backgrounded=run.is_in_background,
            )

    def _make_user_line(
        self, run: _Run, content: list[dict[str, Any]], **more: object
    ) -> dict[str, Any]:
        return self._make_line(
            "user", message={"role": "user", "content": content}, **_make_place_fields(run), **more
        )

    def _make_task_line(self, run: _Run, subtype: str, **fields: object) -> dict[str, Any]:
        task = {"task_id": run.brief.run_id, "tool_use_id": run.brief.call_id}
        return self._make_line(
            "system", subtype=subtype, **task, **fields, **_encode_child(run.brief)
        )

    def _make_line(self, type: str, **fields: object) -> dict[str, Any]:
        return {"type": type, **fields, "session_id": self._session, "uuid": self._new_id()}


def get_claude_state(status: ServerStatus) -> str:
    """Look up Claude Code's name for the state of an MCP server."""
    return "needs-auth" if status.needs_login else _SERVER_STATES[status.state]


def _find_subtype(report: Report) -> str:
    """Find the subtype of a report; the field `reason` always has the exact reason."""
    if report.failed_outputs:
        return "error_max_structured_output_retries"
    subtype = _SUBTYPES.get(report.reason, "error_during_execution")
    if report.ok or report.limit is None:
        return subtype
    return _SUBTYPES.get(report.limit.name, subtype)


def _make_place_fields(run: _Run) -> dict[str, Any]:
    return {
        "parent_tool_use_id": run.brief.call_id or None,
        **(_encode_child(run.brief) if run.brief.depth else {}),
    }


def _describe(brief: Brief) -> str:
    return ": ".join(filter(None, (brief.name, brief.description)))


def _encode_child(brief: Brief) -> dict[str, Any]:
    return {
        **({"name": brief.name} if brief.name else {}),
        "agent_id": brief.run_id,
        "parent_agent_id": brief.parent,
        "spawn_depth": brief.depth,
        "agent_type": brief.agent.name,
    }


def _encode_model_usage(
    use: _ModelUse, cost: Callable[[str, Usage], float | None]
) -> dict[str, Any]:
    usage = sum(use.requests, Usage())
    # One by one, because prices may depend on the length of a request.
    prices = [cost(use.priced_as, each) for each in use.requests]
    known = [price for price in prices if price is not None]
    usd = sum(known) if len(known) == len(prices) else None
    return {
        "inputTokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadInputTokens": usage.cache_read_tokens,
        "cacheCreationInputTokens": usage.cache_write_tokens,
        "webSearchRequests": usage.searches,
        "costUSD": usd,
    }


def _encode_task_usage(run: _Run, usage: Usage, now: float) -> dict[str, Any]:
    return {
        "total_tokens": usage.total_tokens,
        "tool_uses": run.tool_count,
        "duration_ms": round((now - run.started_at) * 1000),
    }


def make_start_fields(event: ToolCallFinished) -> dict[str, Any] | None:
    """Make the fields of `task_started`, if the call started a background command."""
    command = event.result.detail.get("command")
    if not event.result.detail.get("background") or not command:
        return None
    return {
        "subtype": "task_started",
        "task_id": command,
        "tool_use_id": event.call_id,
        "task_type": "local_bash",
        "is_backgrounded": True,
    }


def make_end_fields(event: MessageSent, call_id: str) -> dict[str, Any] | None:
    """Make the fields of `task_notification`, if the message reports a command."""
    message = event.message
    if event.result is None:
        return None
    return {
        "subtype": "task_notification",
        "task_id": message.sender,
        "tool_use_id": call_id,
        "status": message.text.partition("<status>")[2].partition("</status>")[0],
        "summary": message.text,
        "output_file": event.result.spill,
    }
