"""Permission questions: the user allows a tool call, once or by a rule, or denies it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec.structs import replace

from ...._adapters.tools import find_builtin_tool, make_builtin_tools
from ...._core.ports import ApprovalDecision, ApprovalRequest
from ...._core.ports.approval import InputForm
from ...._core.tools import ToolCategory
from ...._projections.run_tree import RunTree
from ...._projections.safe_text import escape_line, make_call_title, sanitize, sanitize_line
from ....permissions.approved_rules import (
    FOLDER_ORIGIN,
    SESSION_ORIGIN,
    ApprovedRules,
    forget_approved,
    keep_approved,
)
from ....permissions.rules import Permissions, Rule, Verdict
from ...output.child_names import make_child_name
from ...output.text import wrap
from ..ui import QuestionUI
from .forms import fill_form
from .question_lines import format_body, format_call, format_title

YES, SESSION, FOLDER, NO = "yes", "session", "folder", "no"
# Characters of a rule in an answer; answers are cut. A longer one is shown in the body.
_MAX_ABOUT = 100
# Columns of a child's name in a question.
_NAME_COLUMNS = 40


class ApprovalPrompt:
    """The port Approver, implemented by asking in a UI.

    Arguments:
        home: mudroom's state folder; rules that the user keeps for a folder are stored there.
        trusted_prompts: digests of the rights of slash commands that the user trusted at the start.

    Attributes:
        asking_runs: the id of a run once for each of its calls that waits for an answer.
    """

    def __init__(
        self, ui: QuestionUI, home: str, trusted_prompts: frozenset[str] = frozenset()
    ) -> None:
        self.trusted_prompts = trusted_prompts
        self._ui = ui
        self._home = home
        self._folder = "."
        self._lock = asyncio.Lock()
        self._exact_calls: dict[str, Rule] = {}
        self._stop: Callable[[], object] = bool
        self._approved = _make_rules(Permissions(), ".", "off")
        self._tree = RunTree()
        self.asking_runs: list[str] = []

    @property
    def rules(self) -> list[Rule]:
        """The rules that the user approved in this session, including exact calls."""
        return [*self._approved.rules, *self._exact_calls.values()]

    def remove(self, rule: Rule) -> None:
        """Ask again for the calls that an approved rule allows; a folder's rule is deleted."""
        self._approved.remove(rule)
        exact_calls = self._exact_calls.items()
        self._exact_calls = {key: exact for key, exact in exact_calls if exact != rule}
        if rule.origin == FOLDER_ORIGIN:
            forget_approved(self._home, rule)

    def start_session(
        self,
        permissions: Permissions,
        folder: str,
        stop: Callable[[], object],
        *,
        tree: RunTree | None = None,
        is_same: bool = False,
        tier: str = "off",
    ) -> None:
        """Ask for the calls of this session from now on.

        Arguments:
            stop: stops the run.
            tree: the session's runs; questions name children as it does.
            is_same: the session was opened again; its approved rules still apply.
            tier: the tier of the session's sandbox.
        """
        rules = self._approved.rules if is_same else []
        if not is_same:
            self._exact_calls.clear()
        self._folder = folder
        self._stop = stop
        self._tree = tree or RunTree()
        self._approved = _make_rules(permissions, folder, tier)
        self._approved.add(*rules)

    @contextmanager
    def allow(self, *rules: Rule) -> Generator[None]:
        """Allow what the rules cover without asking, until the context ends."""
        added = [rule for rule in rules if rule not in self._approved.rules]
        self._approved.add(*added)
        try:
            yield
        finally:
            for rule in added:
                self._approved.remove(rule)

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Ask the user, unless an approved rule allows the call."""
        self.asking_runs.append(request.run_id)
        try:
            # One question after another, because the answer to one can approve the next call.
            async with self._lock:
                request = self._name_child(request)
                if request.form:
                    return await self._fill(request, request.form)
                return await self._ask(request)
        finally:
            self.asking_runs.remove(request.run_id)

    def _name_child(self, request: ApprovalRequest) -> ApprovalRequest:
        """Name the child that asks as the prompt does."""
        name = request.name or self._name_run(request.run_id)
        return replace(request, name=name) if name else request

    def _name_run(self, run_id: str) -> str:
        """Return the name that the prompt has for a child run; "" for other runs."""
        run = self._tree.runs.get(run_id)
        if run is None or not run.parent:
            return ""
        return make_child_name(self._tree, run_id, _NAME_COLUMNS, self._ui.scrollback.glyphs)

    async def _fill(self, request: ApprovalRequest, form: InputForm) -> ApprovalDecision:
        """Ask the user what an MCP server asks; no rule answers it."""
        decision = await fill_form(self._ui, request, form)
        echo = "Stopped." if decision is None else "Declined."
        if decision is None:
            self._stop()
        elif decision.allowed:
            echo = "Agreed." if form.url else "Answered."
        decision = decision or ApprovalDecision(False, "the user stopped the run")
        asked = sanitize_line(f"MCP server {form.server}: {form.message}")
        self._print_lines(asked, echo, is_allowed=decision.allowed)
        return decision

    async def _ask(self, request: ApprovalRequest) -> ApprovalDecision:
        if self._is_approved(request):
            return ApprovalDecision(True, "allowed for this session")
        rules = self._approved.suggest(request.tool, request.arguments)
        findings = self._approved.list_open_findings(request.tool, request.arguments)
        choice = await self._ui.choose(
            format_title(request, self._name_run(str(request.arguments.get("run")))),
            _make_items(request, rules),
            free_text=True,
            body=format_body(
                request,
                [finding.command for finding in findings],
                "" if _fits_answer(about := _describe_rules(request, rules)) else about,
            ),
        )
        decision, echo = self._make_decision(request, rules, choice)
        self._print_answer(request, decision, echo)
        if choice is None:
            self._stop()
        return decision

    def _is_approved(self, request: ApprovalRequest) -> bool:
        if _make_exact_key(request) in self._exact_calls:
            return True
        return self._approved.allow(request.tool, request.arguments)

    def _make_decision(
        self, request: ApprovalRequest, rules: tuple[Rule, ...], choice: str | None
    ) -> tuple[ApprovalDecision, str]:
        """Return the decision of a choice and its text for the user; approve rules."""
        match choice:
            case "yes":
                return ApprovalDecision(True, "the user said yes"), "Allowed once."
            case "session":
                self._approve(request, rules)
                about = _describe_rules(request, rules)
                why = "the user said yes, for this session"
                return ApprovalDecision(True, why), f"Allowed in this session: {about}"
            case "folder":
                keep_approved(self._home, self._folder, rules)
                self._approve(request, rules)
                about = _describe_rules(request, rules)
                why = "the user said yes, for this folder"
                return ApprovalDecision(True, why), f"Allowed in this folder: {about}"
            case None:
                return ApprovalDecision(False, "the user stopped the run"), "Stopped."
            case "no":
                return ApprovalDecision(False, "the user said no"), "Denied."
            case _:
                return ApprovalDecision(False, f"the user said no: {choice}"), f"Denied: {choice}"

    def _approve(self, request: ApprovalRequest, rules: tuple[Rule, ...]) -> None:
        self._approved.add(*rules)
        if not rules:
            tool = f"{request.tool}, this exact call"
            title = make_call_title(request.arguments, find_builtin_tool(request.tool))
            exact = Rule(Verdict.ALLOW, tool, sanitize_line(title), SESSION_ORIGIN)
            self._exact_calls[_make_exact_key(request)] = exact

    def _print_answer(
        self, request: ApprovalRequest, decision: ApprovalDecision, echo: str
    ) -> None:
        """Print the call and the answer, so that they stay on the screen."""
        self._print_lines(format_call(request), echo, is_allowed=decision.allowed)

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


def _make_rules(permissions: Permissions, folder: str, tier: str) -> ApprovedRules:
    return ApprovedRules(
        permissions,
        workspace=os.path.realpath(folder),
        user_home=os.environ.get("HOME", "/"),
        tools=make_builtin_tools(),
        tier=lambda: tier,
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
    """Return whether an answer has room for this text."""
    return len(about) <= _MAX_ABOUT


def _make_exact_key(request: ApprovalRequest) -> str:
    return f"{request.tool} {request.arguments}"
