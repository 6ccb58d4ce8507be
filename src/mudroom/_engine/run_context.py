"""RunContext: the objects of one run, built from its brief."""

from __future__ import annotations

from typing import Any

from .._core.budgets import Limit, LimitState
from .._core.events import NoteInjected
from .._core.json_values import clean_text
from .._core.messages import (
    AssistantMessage,
    TokenRange,
    ToolCallBlock,
    Usage,
    compute_block_range,
    compute_text_range,
    estimate_message_tokens,
    estimate_tokens,
)
from .._core.ports import Environment, RequestConfig, Worker
from .._core.runs import Brief, Reason, Report, RequestHead, Work
from .._core.tool_names import SERVER_PREFIX
from .._core.tools import Tool, make_result_block
from .._platform.paths import read_path_argument
from .._projections.engine_text import quote_hook
from ..errors import WorkspaceError
from .background import BackgroundWork
from .context_policy import Thresholds
from .conversation import REQUESTED_FOCUS, CallOutcome, Conversation, RunTurn
from .evidence import Evidence
from .inbox import Inbox, is_notification, judge_messages
from .loop_detection import LoopDetector
from .mcp_tools import McpTools, RunTools
from .meters.account import LONGEST_ANSWER, LONGEST_CHILD_ANSWER
from .meters.meter import Meter
from .meters.run_timer import RunTimer
from .phase import Phase, RunControl
from .session_context import Recorder, SessionServices
from .structured_output import EMIT_TOOL, OutputCollector, OutputRefusal
from .team_registry import format_team

_LONGER = 4  # how many times more an answer may have after one was cut off


class RunContext:
    """The objects of one run, each with one job and nothing from any other run.

    `tools` are the brief's tools given to the model, without provider tools and any that their
    source has lost; it also finds MCP tools looked up with `mcp_find`. `memo` is the tools' state,
    by tool name.
    """

    def __init__(
        self,
        brief: Brief,
        meter: Meter,
        services: SessionServices,
        worker: Worker,
        control: RunControl,
        environment: Environment,
    ) -> None:
        self.brief = brief
        self.services = services
        self.control = control
        self.environment = environment
        self.meter = meter
        self.timer = RunTimer(services.clock, meter)
        self.recorder = Recorder(services, brief.run_id)
        self.inbox = Inbox(self.recorder)
        self.background = BackgroundWork(
            worker, self.inbox, self.recorder, control, meter.lend_share
        )
        self.outputs = OutputCollector(brief.agent.outputs or {})
        toolbox = services.toolbox
        offered = {name: toolbox[name] for name in brief.tools if name in toolbox}
        own = {name: tool for name, tool in offered.items() if not tool.is_provider_tool}
        self.tools = RunTools(own, McpTools(brief.tools, services.servers))
        if brief.agent.outputs is not None:
            self.tools[EMIT_TOOL] = self.outputs.make_tool()
        self.memo: dict[str, Any] = {}
        self.turn = RunTurn()
        self.evidence = Evidence()
        self.loop_detector = LoopDetector()
        model = services.get_model(brief.model)
        self.conversation = Conversation(
            model.start_conversation, self._make_request_config(), brief.history, brief.blocks
        )

    def _make_request_config(self) -> RequestConfig:
        agent = self.brief.agent
        texts = [agent.instructions, self.services.context_texts.get(agent.context_files, "")]
        if agent.describes_environment and self.services.environment_text:
            folder = self.environment.folder or self.environment.workspace.root
            texts.append(f"Folder: {folder}. {self.services.environment_text}")
        texts.append(format_team(self.brief))
        return RequestConfig(
            system="\n\n".join(filter(None, texts)),
            tools=tuple(self.tools.values()),
            temperature=agent.temperature,
            top_p=agent.top_p,
            max_tokens=self.max_output_tokens,
            provider_tools=self._list_provider_tools(),
            effort=agent.effort,
            cache_key=f"{self.services.session}:{agent.name}",
        )

    def describe_head(self) -> RequestHead:
        return self.services.request_heads.describe(self.conversation.config)

    def _list_provider_tools(self) -> tuple[str, ...]:
        """List the tools the provider may run. It asks nobody, so ASK means no."""
        toolbox = self.services.toolbox
        policy = self.environment.policy
        return tuple(
            name
            for name in self.brief.tools
            if name in toolbox
            and toolbox[name].is_provider_tool
            and policy.judge(ToolCallBlock("", name, {}), toolbox[name], {}, self.brief).verdict
            == "allow"
        )

    @property
    def max_output_tokens(self) -> int | None:
        """The longest answer in tokens, None if neither agent nor session sets one."""
        return self.brief.agent.max_output_tokens or self.services.model_options.max_output_tokens

    @property
    def longest_answer(self) -> int:
        """Tokens that an answer may have if the limits leave enough.

        A child is expected to be brief: it gets longer answers only after one was cut off.
        """
        if own := self.max_output_tokens:
            return own
        is_brief = self.brief.depth > 0 and not self.conversation.cut.required
        return LONGEST_CHILD_ANSWER if is_brief else LONGEST_ANSWER

    @property
    def allowed_answer(self) -> int | None:
        """The maximum sent with the last request, in tokens; None if none was sent."""
        permit = self.meter.permit
        if permit is not None and permit.max_tokens is not None:
            return permit.max_tokens
        if not self.brief.depth or self.max_output_tokens:
            return None
        return LONGEST_ANSWER if self.conversation.cut.required else LONGEST_CHILD_ANSWER

    def require_longer_answer(self, answer: AssistantMessage) -> bool:
        """Allow more tokens after a cut-off answer. Return False if no more can be had.

        What counts is the maximum of the request, not that of the model.
        """
        allowed = self.allowed_answer
        longest = self.max_output_tokens or LONGEST_ANSWER
        if not allowed or allowed > answer.usage.output_tokens or allowed >= longest:
            return False
        self.conversation.cut.required = min(longest, allowed * _LONGER)
        return True

    def _describe_head(self) -> tuple[str, list[tuple[Any, ...]]]:
        config = self.conversation.config
        tools = [(tool.name, tool.description, tool.parameters) for tool in config.tools]
        return config.system, tools

    def compute_repeated_range(self) -> TokenRange:
        """Bound the part of the next request that a provider may have cached.

        In the first request that is the system prompt, the tools and the history.
        """
        if sent := self.conversation.sent_tokens:
            return TokenRange(sent, sent)
        history = [block for message in self.brief.history for block in message.content]
        head = compute_text_range(len(repr(self._describe_head())))
        return head + compute_block_range(history)

    def compute_request_range(self) -> TokenRange:
        """Bound the tokens of the next request, which meters reserve."""
        return self.compute_repeated_range() + compute_block_range(self.conversation.queued)

    def estimate_head_tokens(self) -> int:
        system, tools = self._describe_head()
        return estimate_tokens(system) + estimate_tokens(repr(tools))

    def estimate_request_tokens(self) -> int:
        """Estimate the tokens of the next request, or of the one not answered yet.

        Starts from the provider's count for the last request, if there is one.
        """
        conversation = self.conversation
        tokens = conversation.sent_tokens
        if not tokens:
            tokens = self.estimate_head_tokens() + estimate_message_tokens(self.brief.history)
        return tokens + conversation.new_tokens

    def find_thresholds(self, size: int) -> Thresholds | None:
        """Return the thresholds for a request of this size, None if no limit is known."""
        policy = self.services.context_policy
        fitting = self.conversation.shortening.fitting
        return policy.choose_thresholds(self.brief.model, size, self.max_output_tokens, fitting)

    def add_overflow(self, size: int, error: str) -> None:
        """Learn from a request refused as too long. `size`: its estimated tokens."""
        policy = self.services.context_policy
        fitting = policy.learn_window(self.brief.model, size, error)
        self.conversation.shortening.add_overflow(error, fitting)

    @property
    def run_id(self) -> str:
        return self.brief.run_id

    @property
    def uses_prices(self) -> bool:
        """True if all costs are reported, or the run has a budget in dollars."""
        return (
            self.services.model_options.prices
            or self.meter.compute_amount_left(Limit.USD) is not None
        )

    def compute_price(self, model: str, usage: Usage) -> float | None:
        """Return the price of an answer, None if unknown or only in a table that is not used."""
        return self.services.compute_price(model, usage, uses_table=self.uses_prices)

    @property
    def stop_reason(self) -> Reason:
        """Why the runs below would end if this run's work stopped now."""
        deadline = self.timer.deadline
        if deadline is not None and deadline.expired():
            return Reason.TIMEOUT
        return self.control.stop_reason

    @property
    def is_interrupted(self) -> bool:
        """True if the user interrupts the current turn and no time limit ends the run."""
        deadline = self.timer.deadline
        if deadline is not None and deadline.expired():
            return False
        return self.control.phase is Phase.INTERRUPTING

    def add_note(self, text: str, origin: str = "engine") -> None:
        """Add a note from the engine or a hook to the next message for the model."""
        text = clean_text(quote_hook(text) if origin == "hook" else text)
        if text in self.conversation.restored_notes:
            self.conversation.restored_notes.remove(text)
            return
        self._add(self.recorder.make_event(NoteInjected, text=text, origin=origin))

    def refuse_outputs(self, refusal: OutputRefusal) -> None:
        """Take back outputs refused by their type, and tell the model why."""
        text = clean_text(refusal.note)
        self.outputs.refuse(OutputRefusal(text, refusal.names))
        self._add(self.recorder.make_event(NoteInjected, text=text, refused=refusal.names))

    def _add(self, note: NoteInjected) -> None:
        self.conversation.queue_text(note.text)
        self.recorder.record_later(note, show=True)

    async def judge_messages(self) -> None:
        """Show the user's unread messages to the hooks. Raises StoppedByHook."""
        if hooks := self.services.hooks:
            await judge_messages(self.inbox, hooks, self.brief)

    async def deliver_messages(self) -> None:
        if not self.inbox.has_unread:
            return
        self.conversation.in_a_row.asked = 0
        for event in await self.inbox.take_unread(self.services.spill_folder):
            self.conversation.queue_text(event.text)
            if is_notification(event):
                self.loop_detector.add_notification(event.text)
        for context in self.inbox.take_contexts():
            self.add_note(context, origin="hook")

    def go_to_turn(self, number: int) -> None:
        """Begin a turn or go back to an earlier one; events carry its number from now on."""
        self.turn = RunTurn(number)
        self.recorder.turn = number

    def close_turn(self) -> list[CallOutcome]:
        """Queue the results of the calls, count them as evidence, and return the outcomes."""
        outcomes = self.turn.list_outcomes()
        for each in outcomes:
            if not each.refused:
                self.conversation.in_a_row.asked = 0
            elif each.name == EMIT_TOOL:
                self.outputs.add_refusal(each.result.text)
            if REQUESTED_FOCUS in each.result.detail:
                self.conversation.shortening.requested_focus = each.result.detail[REQUESTED_FOCUS]
        self.conversation.queue_results(
            [
                make_result_block(each.call_id, self.turn.choose_result_name(each), each.result)
                for each in outcomes
            ]
        )
        self.evidence.add(outcomes)
        self.evidence.board_reminder.add(outcomes, self.turn.number)
        self.turn = RunTurn(self.turn.number)
        return outcomes

    def _compute_costs(self) -> float | None:
        """Return the cost of the answers so far in US dollars, None if unknown.

        0.0 means a free model, or no call at all.
        """
        meter = self.meter
        if not meter.is_price_known:
            return None
        if not meter.usd:
            price = self.compute_price(self.brief.model, Usage(1, 1))
            if price is None or (price and self.turn.number):
                return None
        return round(meter.usd, 6)

    def find_tool(self, call: ToolCallBlock, name: str) -> Tool | None:
        """Find the tool a call means, None if the run has no such tool.

        An MCP tool is taken as its server lists it now.
        """
        return self.tools.find(name) if name.startswith(SERVER_PREFIX) else self.tools.get(name)

    def read_path(self, call_id: str, name: str, path: str) -> str:
        """Return the path a call's argument means, with `~` and the like expanded.

        Raises ValueError, with the remedy, for a path that means nothing here.
        """
        workspace = self.environment.workspace

        def exists(path: str) -> bool:
            try:
                workspace.stat(path)
            except WorkspaceError as error:
                # The tool explains anything else that is wrong with the path better.
                return not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
            return True

        return read_path_argument(path, exists)

    def make_report(
        self,
        reason: Reason,
        text: str,
        *,
        recovered: bool = False,
        error: str = "",
        limit: LimitState | None = None,
        work: Work | None = None,
    ) -> Report:
        meter = self.meter
        return Report(
            text=text,
            reason=reason,
            run_id=self.run_id,
            recovered=recovered,
            outputs=self.outputs.values,
            failed_outputs=self.outputs.failed,
            usage=meter.usage + meter.descendant_usage,
            usd=self._compute_costs(),
            turns=self.turn.number,
            seconds=round(self.timer.age, 3),
            calls=self.evidence.calls,
            failed=self.evidence.failed,
            files_read=self.evidence.files_read,
            files_changed=self.evidence.files_changed,
            observed_changes=self.evidence.observed_changes,
            unknown_changes=self.evidence.unknown_changes,
            has_unknown_usage=meter.estimate.total_tokens > 0,
            agent=self.brief.agent.name,
            model=self.brief.model,
            error=clean_text(error),
            limit=limit,
            stopped_commands=self.background.stopped_commands,
            work=work,
            merges=self.evidence.merges,
            missing_tools=self.evidence.missing_tools,
            parallel_runs=self.evidence.list_parallel_runs(self.run_id),
            unread_messages=self.services.teams.count_unread(self.run_id),
        )
