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

_LONGER = 4  # factor by which the maximum of an answer grows after it has cut one off


class RunContext:
    """The objects of one run, each with one job. Nothing of another run is in them.

    `tools` are those of the brief that the model gets, without those that the provider runs; a
    source may have lost some. Tools of servers that it finds by `mcp_find` are found, too. `memo`
    is the state of the tools, by tool name.
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
        self.background = BackgroundWork(worker, self.inbox, self.recorder, control, meter.wait)
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
        """Return the tools that the provider may run. It does not ask, so ASK means no."""
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
        """Longest answer of the model in tokens, None if neither agent nor session sets it."""
        return self.brief.agent.max_output_tokens or self.services.model_options.max_output_tokens

    @property
    def longest_answer(self) -> int:
        """Tokens that an answer may have where the limits leave enough.

        A child is expected to be brief: its answers get more only after one was cut off.
        """
        if own := self.max_output_tokens:
            return own
        is_brief = self.brief.depth > 0 and not self.conversation.cut.required
        return LONGEST_CHILD_ANSWER if is_brief else LONGEST_ANSWER

    @property
    def allowed_answer(self) -> int | None:
        """Tokens that the answer to the last request could have; None: no maximum was sent."""
        permit = self.meter.permit
        if permit is not None and permit.max_tokens is not None:
            return permit.max_tokens
        if not self.brief.depth or self.max_output_tokens:
            return None
        return LONGEST_ANSWER if self.conversation.cut.required else LONGEST_CHILD_ANSWER

    def require_longer_answer(self, answer: AssistantMessage) -> bool:
        """Allow more tokens after an answer that was cut off. Return False if more cannot be had.

        Only the request's own maximum counts, not the model's.
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
        """Return the bounds of the part of the next request that a provider may have in its cache.

        In the first request it is system prompt, tools and history.
        """
        if sent := self.conversation.sent_tokens:
            return TokenRange(sent, sent)
        history = [block for message in self.brief.history for block in message.content]
        head = compute_text_range(len(repr(self._describe_head())))
        return head + compute_block_range(history)

    def compute_request_range(self) -> TokenRange:
        """Return the bounds of the tokens of the next request. Meters reserve them."""
        return self.compute_repeated_range() + compute_block_range(self.conversation.queued)

    def estimate_head_tokens(self) -> int:
        system, tools = self._describe_head()
        return estimate_tokens(system) + estimate_tokens(repr(tools))

    def estimate_request_tokens(self) -> int:
        """Return about how many tokens the next request has, or the one that has no answer yet.

        It begins with the count of the provider for the last request, if there is one.
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
        """Learn from the refusal of a request as too long. `size`: about how many tokens it had."""
        policy = self.services.context_policy
        fitting = policy.learn_window(self.brief.model, size, error)
        self.conversation.shortening.add_overflow(error, fitting)

    @property
    def run_id(self) -> str:
        return self.brief.run_id

    @property
    def uses_prices(self) -> bool:
        """True if all costs are stated, or a budget in dollars holds for the run."""
        return (
            self.services.model_options.prices
            or self.meter.compute_amount_left(Limit.USD) is not None
        )

    def compute_price(self, model: str, usage: Usage) -> float | None:
        """Return the price of an answer, None if it is unknown or needs a table that is off."""
        return self.services.compute_price(model, usage, uses_table=self.uses_prices)

    @property
    def stop_reason(self) -> Reason:
        """Reason of the runs below if the work of this run is stopped now."""
        deadline = self.timer.deadline
        if deadline is not None and deadline.expired():
            return Reason.TIMEOUT
        return self.control.stop_reason

    @property
    def is_interrupted(self) -> bool:
        """True if the user interrupts the current turn, and no time limit ends the run."""
        deadline = self.timer.deadline
        if deadline is not None and deadline.expired():
            return False
        return self.control.phase is Phase.INTERRUPTING

    def add_note(self, text: str, origin: str = "engine") -> None:
        """Add a note of the engine or of a hook to the next message to the model."""
        text = clean_text(quote_hook(text) if origin == "hook" else text)
        if text in self.conversation.restored_notes:
            self.conversation.restored_notes.remove(text)
            return
        self._add(self.recorder.make_event(NoteInjected, text=text, origin=origin))

    def refuse_outputs(self, refusal: OutputRefusal) -> None:
        """Take back outputs that their type refuses, and tell the model why."""
        text = clean_text(refusal.note)
        self.outputs.refuse(OutputRefusal(text, refusal.names))
        self._add(self.recorder.make_event(NoteInjected, text=text, refused=refusal.names))

    def _add(self, note: NoteInjected) -> None:
        self.conversation.queue_text(note.text)
        self.recorder.record_later(note, show=True)

    async def judge_messages(self) -> None:
        """Show the unread messages of the user to the hooks. Raises StoppedByHook."""
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
        """Begin a turn, or return to an earlier one; events carry its number from now on."""
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
        """Return the US dollars of the answers so far, None if they are not known.

        0.0 means that the model is free, or that it was never called.
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
        """Return the tool that a call means, None if the run has none of the name.

        A tool of a server counts as the server lists it now.
        """
        return self.tools.find(name) if name.startswith(SERVER_PREFIX) else self.tools.get(name)

    def read_path(self, call_id: str, name: str, path: str) -> str:
        """Return the path that an argument of a call means, with `~` and the like expanded.

        Raises ValueError with the remedy for a path that means nothing here.
        """
        workspace = self.environment.workspace

        def exists(path: str) -> bool:
            try:
                workspace.stat(path)
            except WorkspaceError as error:
                # Whatever else is wrong with the path, the tool says it better.
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
