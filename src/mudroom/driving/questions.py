"""Questions: the tool calls of a session that its client must decide on."""

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
    """A tool call that waits for a decision, or the form of an MCP server.

    Arguments:
        id: names the question in the answer of a client.
        request: the call, and why it needs a decision.
        decision: what `answer` sets.
        is_sent: for the client: it has brought the question to its user.

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
        """True while it waits: nobody has answered, and the run has not ended."""
        return not self.decision.done()

    def answer(self, decision: ApprovalDecision) -> bool:
        """Decide. Return False if someone else was faster, or the run has ended."""
        if self.decision.done():
            return False
        self.decision.set_result(decision)
        return True


class Questions:
    """The open questions of a session; the `approver` for a client that answers from afar.

    A question is withdrawn as soon as it has an answer, when its time is over, and when its run
    ends or is stopped: it leaves `list`, and the call of `ask` is cancelled. Questions do not wait
    for one another.

    Arguments:
        ask: brings a question to the client and returns its decision. None if the client reads
            `list` and answers by id; `answer` works in both cases, and the first answer counts.
            A MudroomError denies the call.
        seconds: time for an answer; then the call is denied. None for no limit.
        on_change: called with the question whenever one is asked or withdrawn.
        refuse: returns why the client cannot be asked, which denies the call, or None.
        make_id: makes the id of a question. Random by default.
        allowed: reason given for calls that an earlier answer allows.

    Attributes:
        mode: a permission mode that the client has set while a prompt works. It widens what is
            allowed at once: ACCEPT_EDITS allows writing, BYPASS everything. None adds nothing.

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
        """The rules that answers have approved; those for an exact call are not in any settings."""
        return (*(self._approved.rules if self._approved else ()), *self._exact_calls.values())

    def list(self, run_id: str | None = None) -> tuple[Question, ...]:
        """Return the open questions, oldest first; only those of a run and below it with an id."""
        questions = (question for question in self._open.values() if question.is_open)
        if run_id is None:
            return tuple(questions)
        return tuple(
            question
            for question in questions
            if question.request.run_id == run_id or is_run_above(run_id, question.request.run_id)
        )

    def find(self, id: str) -> Question | None:
        """Return an open question by its id."""
        question = self._open.get(id)
        return question if question and question.is_open else None

    def answer(self, id: str, decision: ApprovalDecision) -> bool:
        """Answer a question by its id. Return False if no such question is open."""
        question = self.find(id)
        return question is not None and question.answer(decision)

    def withdraw(self, run_id: str) -> None:
        """Deny the open questions of a run that has ended, and of the runs below it."""
        for question in self.list(run_id):
            question.answer(ApprovalDecision(False, "the run has ended"))

    def start_session(self, session: Session) -> None:
        """Ask about the calls of this open session. Rules approved earlier still apply."""
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
        """Allow from now on what these rules cover."""
        if self._approved:
            self._approved.add(*rules)

    def remove_rules(self, *rules: Rule) -> None:
        """Ask again about what these rules allow; a rule that is kept for a folder is deleted.

        Raises UsageError or OSError if the file of such rules cannot be read or written.
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

        Raises UsageError or OSError if the file of such rules cannot be read or written.
        """
        if self._session and rules:
            keep_approved(self._session.home, self._session.cwd, rules)

    def suggest_rules(self, request: ApprovalRequest) -> tuple[Rule, ...]:
        """Return the rules that would allow this call and similar ones; () if none can."""
        if self._approved is None or request.form:
            return ()
        return self._approved.suggest(request.tool, request.arguments)

    def list_open_parts(self, request: ApprovalRequest) -> tuple[str, ...]:
        """Return the parts of a command that no rule allows yet."""
        if self._approved is None:
            return ()
        findings = self._approved.list_open_findings(request.tool, request.arguments)
        return tuple(finding.command for finding in findings)

    def allow_always(
        self, request: ApprovalRequest, rules: tuple[Rule, ...] | None = None
    ) -> tuple[Rule, ...]:
        """Allow this call and similar ones from now on; return the rules that say so.

        Without a rule that could, only this exact call is allowed. A form is asked about always.

        Arguments:
            rules: those that the client has shown; by default those of `suggest_rules`.
        """
        rules = self.suggest_rules(request) if rules is None else rules
        self.add_rules(*rules)
        if not (rules or request.form):
            self._exact_calls[_make_exact_key(request)] = _make_exact_rule(request)
        return rules

    def find_reason(self, request: ApprovalRequest) -> str | None:
        """Return why a call is allowed without a question, None if it is not.

        A client that shows one question after another looks here again before each of them: the
        answer to one may allow the next call.
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
        """Wait for the client's decision, unless an earlier answer or the mode allows the call."""
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
                await asyncio.wait({asking})  # the client is told before the run goes on

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
    """Return a rule to show for a call that no rule of the settings can allow."""
    title = make_call_title(request.arguments, find_builtin_tool(request.tool))
    tool = f"{request.tool}, this exact call"
    return Rule(Verdict.ALLOW, tool, sanitize_line(title), SESSION_ORIGIN)
