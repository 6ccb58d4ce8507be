"""The port Policy by rules: what each call may do, in which mode, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from .._core.agents import Brief, Mode
from .._core.messages import Call
from .._core.ports import Decision, Workspace
from .._core.tools import Effect, Tool
from .agent_limits import Limit, Limited, barred, limits_of
from .filtered_workspace import View
from .match_call import about, path_of
from .path_rules import Place, covers
from .rules import ALLOW, ASK, DENY, EDIT, OPEN, REACH, READ, RUN, Finding, Permissions

if TYPE_CHECKING:
    from .shell_judge import Commands

_HELD = "no rule is against it, and the sandbox holds it"
_FREE = Decision(ALLOW, _HELD)
_ORDER = (DENY, ASK, ALLOW)
_ABOUT = {
    "write": "a file is written",
    "edit": "a file is changed",
    "bash": "a command runs",
    "web_fetch": "a page is fetched",
}


class RulePolicy:
    """Implements the port Policy.

    Arguments:
        permissions: rules and mode. root: the workspace; home: the person's folder; both absolute.
        tier: gives the sandbox's tier when it is needed.
    """

    def __init__(
        self, permissions: Permissions, *, root: str, home: str, tier: Callable[[], str]
    ) -> None:
        self._permissions, self._tier, self._place = permissions, tier, Place(root, home)
        self._rules = {
            verdict: [rule for rule in permissions.rules if rule.verdict == verdict]
            for verdict in _ORDER
        }
        self._unread = [rule for rule in self._rules[DENY] if rule.spec and rule.names("read")]
        self._narrower: dict[Limited, tuple[RulePolicy, list[Limit]]] = {}
        self._idle = (
            not permissions.rules and not permissions.attended and not permissions.only_listed
        )

    def barred(self, name: str) -> bool:
        """Whether no call of this tool could ever be allowed, so that no model need hear of it."""
        return any(not rule.spec and rule.names(name) for rule in self._rules[DENY])

    def judge(self, call: Call, tool: Tool, arguments: Mapping[str, Any], brief: Brief) -> Decision:
        """Decide on a call."""
        mode = brief.mode.within(self._permissions.mode)
        if not (held := limits_of(brief)):
            return self.decide(tool, arguments, mode)
        stricter, limits = self._limited(held)
        refusals = (limit.refusal(tool.name, arguments) for limit in limits)
        return next(filter(None, refusals), None) or stricter.decide(tool, arguments, mode)

    def view(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """The workspace without the files this tool may not read in this run."""
        held = limits_of(brief)
        if not held and not self._unread:
            return workspace
        stricter, limits = self._limited(held)

        def barring(path: str) -> str:
            rule = next(
                (rule for rule in stricter._unread if covers(rule, path, self._place, loose=True)),
                None,
            )
            return (
                f"a rule says so: {rule}"
                if rule
                else next(filter(None, (limit.hides(tool, path) for limit in limits)), "")
            )

        return cast("Workspace", View(workspace, barring))

    def _limited(self, held: Limited) -> tuple[RulePolicy, list[Limit]]:
        """This policy with what agents bar as deny rules, and what they allow alone."""
        if held not in self._narrower:
            rules = (*self._permissions.rules, *(rule for texts in held for rule in barred(texts)))
            permissions = replace(self._permissions, rules=rules)
            stricter = RulePolicy(
                permissions, root=self._place.root, home=self._place.home, tier=self._tier
            )
            self._narrower[held] = stricter, [Limit(texts, self._place) for texts in held]
        return self._narrower[held]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> Decision:
        """Decide on what a tool would be asked to do, in a mode."""
        if (
            self._idle
            and not tool.needs_confirmation
            and mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS)
        ):
            return _FREE
        findings = self.findings(tool, arguments)
        decisions = [self.settled(finding, mode) for finding in findings]
        return min(decisions, key=lambda decision: _ORDER.index(decision.verdict))

    def findings(self, tool: Tool, arguments: Mapping[str, Any]) -> list[Finding]:
        """What is known of each part of a call, before the mode decides."""
        if tool.name != "bash":
            return [self._call(tool, arguments)]
        found = self._commands.judge(str(arguments.get("command", "")))
        return (
            [*found, Finding(ASK, RUN, "without a sandbox each command is confirmed")]
            if tool.needs_confirmation
            else found
        )

    @cached_property
    def _commands(self) -> Commands:
        from .shell_judge import (
            Commands,  # the shell's grammar costs time, and many sessions judge no command
        )

        return Commands(self._permissions.rules, self._place)

    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> Finding:
        kind = _kind(tool)
        for verdict in _ORDER:
            for rule in self._rules[verdict]:
                if rule.names(tool.name) and about(rule, tool.name, arguments, self._place):
                    return Finding(verdict, kind, f"a rule says {verdict}", rule)
        if tool.needs_confirmation:
            return Finding(ASK, kind, "the tool asks for confirmation")
        path = path_of(tool.name, arguments)
        if kind == EDIT and path and not self._place.inside(path):
            return Finding(OPEN, RUN, f"{path} is outside the folder")
        return Finding(
            ALLOW if kind == READ else OPEN,
            kind,
            _ABOUT.get(tool.name, "it acts outside the folder"),
        )

    def settled(self, finding: Finding, mode: Mode) -> Decision:
        """The mode's word on a finding."""
        rule = str(finding.rule) if finding.rule else ""

        def decided(verdict: str, why: str = "") -> Decision:
            return Decision(verdict, why or finding.why, rule, finding.part)

        if finding.verdict == DENY:
            return decided(DENY)
        if mode is Mode.BYPASS:
            return decided(ALLOW, "nothing but deny rules holds in this mode")
        if mode is Mode.PLAN and finding.kind != READ:
            return decided(DENY, "only reading is allowed in plan mode")
        if finding.verdict == ALLOW:
            return decided(ALLOW)
        if mode is Mode.DONT_ASK:
            return decided(DENY, f"{finding.why}, and in this mode nothing is asked")
        if finding.verdict == OPEN and self._trusts(finding.kind, mode):
            return decided(ALLOW, _HELD)
        return decided(ASK)

    def _trusts(self, kind: str, mode: Mode) -> bool:
        """Whether what no rule is about is done without asking."""
        if not self._permissions.attended:
            return not self._permissions.only_listed or (mode is Mode.ACCEPT_EDITS and kind == EDIT)
        return mode is Mode.ACCEPT_EDITS and (
            kind == EDIT or (kind == RUN and self._tier() in ("full", "file"))
        )


def _kind(tool: Tool) -> str:
    if tool.name in ("write", "edit"):
        return EDIT
    if tool.effect is Effect.PURE or tool.name in ("task", "self.emitvalue"):
        return READ
    return REACH
