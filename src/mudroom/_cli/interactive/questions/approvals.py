"""Permission questions: the user allows a tool call, once or by rule, or denies it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec.structs import replace

from ...._core.ports import ApprovalDecision, ApprovalRequest
from ...._core.ports.approval import InputForm
from ...._core.tools import ToolCategory
from ...._projections.run_tree import RunTree
from ...._projections.safe_text import escape_line, sanitize, sanitize_line
from ....driving import Question, Questions
from ....errors import MudroomError
from ....permissions.rules import Rule
from ...output.child_names import make_child_name
from ...output.text import wrap
from ..ui import QuestionUI
from .forms import fill_form
from .question_lines import format_body, format_call, format_title

YES, SESSION, FOLDER, NO = "yes", "session", "folder", "no"
# Characters of a rule in an answer; answers are cut. Longer rules are shown in the body.
_MAX_ABOUT = 100
# Columns for a child's name in a question.
_NAME_COLUMNS = 40


class ApprovalPrompt:
    """Brings a conversation's questions to the user of a UI, one after another.

    Questions name children as `tree` does. `stop` is called when the user leaves a question
    unanswered. `trusted_prompts` are digests of the rights of slash commands that the user trusted
    at the start.
    """

    def __init__(self, ui: QuestionUI, trusted_prompts: frozenset[str] = frozenset()) -> None:
        self.questions = Questions(self._ask)
        self.trusted_prompts = trusted_prompts
        self.tree = RunTree()
        self.stop: Callable[[], object] = bool
        self._ui = ui
        self._lock = asyncio.Lock()

    @property
    def asking_runs(self) -> list[str]:
        """Ids of the asking runs, repeated for each call awaiting an answer."""
        return [question.request.run_id for question in self.questions.list()]

    @contextmanager
    def allow(self, *rules: Rule) -> Generator[None]:
        """Allow what the rules cover without asking, until the context exits."""
        added = [rule for rule in rules if rule not in self.questions.rules]
        self.questions.add_rules(*added)
        try:
            yield
        finally:
            self.questions.remove_rules(*added)

    async def _ask(self, question: Question) -> ApprovalDecision:
        # One question at a time, because the answer to one can approve the next call.
        async with self._lock:
            request = self._name_child(question.request)
            if request.form:
                return await self._fill(request, request.form)
            if why := self.questions.find_reason(request):
                return ApprovalDecision(True, why)
            return await self._choose(request)

    def _name_child(self, request: ApprovalRequest) -> ApprovalRequest:
        name = request.name or self._name_run(request.run_id)
        return replace(request, name=name) if name else request

    def _name_run(self, run_id: str) -> str:
        """Return the prompt's name for a child run; "" for other runs."""
        run = self.tree.runs.get(run_id)
        if run is None or not run.parent:
            return ""
        return make_child_name(self.tree, run_id, _NAME_COLUMNS, self._ui.scrollback.glyphs)

    async def _fill(self, request: ApprovalRequest, form: InputForm) -> ApprovalDecision:
        """Pass an MCP server's question to the user; no rule answers it."""
        decision = await fill_form(self._ui, request, form)
        echo = "Stopped." if decision is None else "Declined."
        if decision is None:
            self.stop()
        elif decision.allowed:
            echo = "Agreed." if form.url else "Answered."
        decision = decision or ApprovalDecision(False, "the user stopped the run")
        asked = sanitize_line(f"MCP server {form.server}: {form.message}")
        self._print_lines(asked, echo, is_allowed=decision.allowed)
        return decision

    async def _choose(self, request: ApprovalRequest) -> ApprovalDecision:
        rules = self.questions.suggest_rules(request)
        choice = await self._ui.choose(
            format_title(request, self._name_run(str(request.arguments.get("run")))),
            _make_items(request, rules),
            free_text=True,
            body=format_body(
                request,
                self.questions.list_open_parts(request),
                "" if _fits_answer(about := _describe_rules(request, rules)) else about,
            ),
        )
        decision, echo = self._make_decision(request, rules, choice)
        self._print_lines(format_call(request), echo, is_allowed=decision.allowed)
        if choice is None:
            self.stop()
        return decision

    def _make_decision(
        self, request: ApprovalRequest, rules: tuple[Rule, ...], choice: str | None
    ) -> tuple[ApprovalDecision, str]:
        """Turn a choice into a decision and its text for the user; approve rules."""
        match choice:
            case "yes":
                return ApprovalDecision(True, "the user said yes"), "Allowed once."
            case "session" | "folder":
                return self._approve(request, rules, choice)
            case None:
                return ApprovalDecision(False, "the user stopped the run"), "Stopped."
            case "no":
                return ApprovalDecision(False, "the user said no"), "Denied."
            case _:
                return ApprovalDecision(False, f"the user said no: {choice}"), f"Denied: {choice}"

    def _approve(
        self, request: ApprovalRequest, rules: tuple[Rule, ...], place: str
    ) -> tuple[ApprovalDecision, str]:
        """Allow similar calls from now on, and also in later sessions if `place` is the folder."""
        self.questions.allow_always(request, rules)
        fault = ""
        if place == FOLDER:
            try:
                self.questions.keep_rules(*rules)
            except (MudroomError, OSError) as error:
                place, fault = SESSION, f" (not kept: {error})"
        about = f"{_describe_rules(request, rules)}{fault}"
        why = f"the user said yes, for this {place}"
        return ApprovalDecision(True, why), f"Allowed in this {place}: {about}"

    def _print_lines(self, asked: str, echo: str, *, is_allowed: bool) -> None:
        scrollback = self._ui.scrollback
        glyphs = scrollback.glyphs
        rows = list(wrap(sanitize(echo), scrollback.columns() - 5))
        scrollback.write_lines(
            *(
                [(f"{'  ' if n else '? '}{row}", "bold")]
                for n, row in enumerate(wrap(asked, scrollback.columns() - 3))
            ),
            *(
                [(f"  {' ' * len(glyphs.hook) if n else glyphs.hook}", "dim"), (row, style)]
                for style in ["green" if is_allowed else "yellow"]
                for n, row in enumerate(rows)
            ),
        )


def _make_items(request: ApprovalRequest, rules: tuple[Rule, ...]) -> list[tuple[str, str]]:
    about = _describe_rules(request, rules)
    if not _fits_answer(about):
        about = "what is shown above"
    items = [(YES, "yes"), (SESSION, f"yes, always in this session: {about}")]
    if rules:
        items.append((FOLDER, f"yes, always in this folder: {about}"))
    return [*items, (NO, "no (or type what to do instead)")]


def _describe_rules(request: ApprovalRequest, rules: tuple[Rule, ...]) -> str:
    if not rules:
        return "this exact command"
    if request.category is ToolCategory.WRITE and all(rule.pattern == "/**" for rule in rules):
        return "change any file of this folder"
    return escape_line(", ".join(rule.pattern or rule.tool for rule in rules))


def _fits_answer(about: str) -> bool:
    return len(about) <= _MAX_ABOUT
