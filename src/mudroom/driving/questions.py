"""Questions: a session's tool calls that await its client's decision."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from msgspec import Struct

from .._adapters.tools import find_builtin_tool, make_builtin_tools
from .._core.agents import Mode
from .._core.ports import ApprovalDecision, ApprovalRequest
from .._core.runs import is_run_above
from .._core.tools import ToolCategory
from .._platform.time_limits import time_limit
from .._projections.safe_text import make_call_title, sanitize_line
from .._session.session import Session
from ..errors import MudroomError
from ..permissions.approved_rules import (
    FOLDER_ORIGIN,
    SESSION_ORIGIN,
    ApprovedRules,
    forget_approved,
    keep_approved,
)
from ..permissions.rules import Rule, Verdict


class Question(Struct, eq=False, kw_only=True):
    """A tool call, or an MCP server's form, that awaits a decision.

    Arguments:
        id: identifies the question in the client's answer.
        request: the call, and why it needs a decision.
        decision: set by `answer`.
        is_sent: for the client's use: it has shown the question to its user.

    Example:
        def show(question: Question) -> str:
            return f"{question.id}: {question.request.tool} {question.request.arguments}"
    """

    id: str
    request: ApprovalRequest
    decision: asyncio.Future[ApprovalDecision]
    is_sent: bool = False

    @property
    def is_open(self) -> bool:
        """True until someone answers or the run ends."""
        return not self.decision.done()

    def answer(self, decision: ApprovalDecision) -> bool:
        """Decide the call. Return False if someone else was faster, or the run has ended."""
        if self.decision.done():
            return False
        self.decision.set_result(decision)
        return True


class Questions:
    """The open questions of a session; the `approver` for a remote client.

    A question is withdrawn once it is answered, times out, or its run ends or is stopped: it leaves
    `list`, and the call to `ask` is cancelled. Questions do not wait for one another.

    Arguments:
        ask: brings a question to the client and returns its decision. None if the client reads
            `list` and answers by id; `answer` works in both cases, and the first answer counts.
            A MudroomError denies the call.
        seconds: time to answer, after which the call is denied. None for no limit.
        on_change: called with the question whenever one is asked or withdrawn.
        refuse: returns why the client cannot be asked, which denies the call, or None.
        make_id: makes a question's id. Random by default.
        allowed: reason given for calls allowed by an earlier answer.

    Attributes:
        mode: a permission mode that the client set during a prompt. It immediately widens what is
            allowed: ACCEPT_EDITS allows writing, BYPASS everything. None adds nothing.

    Example:
        questions = Questions(seconds=120, on_change=lambda question: print(len(questions.list())))
        session = Session(approver=questions)
    """

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[ApprovalDecision]] | None = None,
        *,
        seconds: float | None = None,
        on_change: Callable[[Question], object] | None = None,
        refuse: Callable[[ApprovalRequest], str | None] | None = None,
        make_id: Callable[[ApprovalRequest], str] | None = None,
        allowed: str = "allowed for this session",
    ) -> None:
        self.mode: Mode | None = None
        self._ask = ask
        self._seconds = seconds
        self._on_change = on_change
        self._refuse = refuse
        self._make_id = make_id
        self._allowed = allowed
        self._open: dict[str, Question] = {}
        self._session: Session | None = None
        self._approved: ApprovedRules | None = None
        self._exact_calls: dict[str, Rule] = {}

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules approved by answers; rules for an exact call are not in any settings."""
        return (*(self._approved.rules if self._approved else ()), *self._exact_calls.values())

    def list(self, run_id: str | None = None) -> tuple[Question, ...]:
        """List the open questions, oldest first; with an id, those of that run and below it."""
        questions = (question for question in self._open.values() if question.is_open)
        if run_id is None:
            return tuple(questions)
        return tuple(
            question
            for question in questions
            if question.request.run_id == run_id or is_run_above(run_id, question.request.run_id)
        )

    def find(self, id: str) -> Question | None:
        """Find an open question by its id."""
        question = self._open.get(id)
        return question if question and question.is_open else None

    def answer(self, id: str, decision: ApprovalDecision) -> bool:
        """Answer a question by its id. Return False if no such question is open."""
        question = self.find(id)
        return question is not None and question.answer(decision)

    def withdraw(self, run_id: str) -> None:
        """Deny the open questions of an ended run and the runs below it."""
        for question in self.list(run_id):
            question.answer(ApprovalDecision(False, "the run has ended"))

    def start_session(self, session: Session) -> None:
        """Take questions from this open session. Rules approved earlier still apply."""
        rules = self._approved.rules if self._approved else []
        self._session = session
        self._approved = ApprovedRules(
            session.permissions,
            workspace=session.cwd,
            user_home=session.user_home,
            tools=make_builtin_tools(),
            tier=lambda: session.sandbox.tier,
        )
        self._approved.add(*rules)

    def add_rules(self, *rules: Rule) -> None:
        """Allow what these rules cover from now on."""
        if self._approved:
            self._approved.add(*rules)

    def remove_rules(self, *rules: Rule) -> None:
        """Ask again about what these rules allow; a rule kept for a folder is deleted.

        Raises UsageError or OSError if the file of kept rules cannot be read or written.
        """
        exact = self._exact_calls.items()
        self._exact_calls = {key: rule for key, rule in exact if rule not in rules}
        for rule in rules:
            if self._approved:
                self._approved.remove(rule)
            if self._session and rule.origin == FOLDER_ORIGIN:
                forget_approved(self._session.home, rule)

    def keep_rules(self, *rules: Rule) -> None:
        """Allow what these rules cover in later sessions in this folder and below it.

        Raises UsageError or OSError if the file of kept rules cannot be read or written.
        """
        if self._session and rules:
            keep_approved(self._session.home, self._session.cwd, rules)

    def suggest_rules(self, request: ApprovalRequest) -> tuple[Rule, ...]:
        """Suggest rules that would allow this call and similar ones; () if none can."""
        if self._approved is None or request.form:
            return ()
        return self._approved.suggest(request.tool, request.arguments)

    def list_open_parts(self, request: ApprovalRequest) -> tuple[str, ...]:
        """List the parts of a command that no rule allows yet."""
        if self._approved is None:
            return ()
        findings = self._approved.list_open_findings(request.tool, request.arguments)
        return tuple(finding.command for finding in findings)

    def allow_always(
        self, request: ApprovalRequest, rules: tuple[Rule, ...] | None = None
    ) -> tuple[Rule, ...]:
        """Allow this call and similar ones from now on; return the rules that do so.

        If no rule can, only this exact call is allowed. Forms always need an answer.

        Arguments:
            rules: those the client has shown; by default those from `suggest_rules`.
        """
        rules = self.suggest_rules(request) if rules is None else rules
        self.add_rules(*rules)
        if not (rules or request.form):
            self._exact_calls[_make_exact_key(request)] = _make_exact_rule(request)
        return rules

    def find_reason(self, request: ApprovalRequest) -> str | None:
        """Find why a call is allowed without a question, None if it is not.

        A client that shows one question at a time checks again before each: the answer to one may
        allow the next call.
        """
        if request.form:
            return None
        is_known = _make_exact_key(request) in self._exact_calls
        if is_known or (self._approved and self._approved.allow(request.tool, request.arguments)):
            return self._allowed
        is_edit = request.category is ToolCategory.WRITE
        if self.mode is Mode.BYPASS or (self.mode is Mode.ACCEPT_EDITS and is_edit):
            return f"allowed by the mode {self.mode.value}"
        return None

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Await the client's decision, unless an earlier answer or the mode allows the call."""
        if why := self.find_reason(request):
            return ApprovalDecision(True, why)
        if self._refuse and (refusal := self._refuse(request)):
            return ApprovalDecision(False, refusal)
        decision = asyncio.get_running_loop().create_future()
        question = Question(id=self._choose_id(request), request=request, decision=decision)
        self._open[question.id] = question
        self._tell(question)
        asking = asyncio.create_task(self._bring(question, self._ask)) if self._ask else None
        try:
            async with time_limit(self._seconds):
                return await decision
        except TimeoutError:
            return ApprovalDecision(False, f"no one answered within {self._seconds:g} s")
        finally:
            decision.cancel()
            del self._open[question.id]
            self._tell(question)
            if asking:
                asking.cancel()
                await asyncio.wait({asking})  # tell the client before the run continues

    async def _bring(
        self, question: Question, ask: Callable[[Question], Awaitable[ApprovalDecision]]
    ) -> None:
        try:
            question.answer(await ask(question))
        except MudroomError as error:
            question.answer(ApprovalDecision(False, f"the client could not answer: {error}"))
        except Exception as error:  # noqa: BLE001  (the call fails with it)
            if question.is_open:
                question.decision.set_exception(error)

    def _choose_id(self, request: ApprovalRequest) -> str:
        made = self._make_id(request) if self._make_id else secrets.token_hex(8)
        # Two forms of the same call can be open at once.
        return made if made not in self._open else f"{made}_{secrets.token_hex(4)}"

    def _tell(self, question: Question) -> None:
        if self._on_change:
            self._on_change(question)


def _make_exact_key(request: ApprovalRequest) -> str:
    return f"{request.tool} {request.arguments}"


def _make_exact_rule(request: ApprovalRequest) -> Rule:
    """Make a rule to show for a call that no rule in the settings can allow."""
    title = make_call_title(request.arguments, find_builtin_tool(request.tool))
    tool = f"{request.tool}, this exact call"
    return Rule(Verdict.ALLOW, tool, sanitize_line(title), SESSION_ORIGIN)
