"""The port Policy by rules: what each call may do, in which mode, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._core.agents import Brief, Mode
from .._core.messages import Call
from .._core.ports import Decision
from .._core.tools import Effect, Tool
from .paths import Place, matches
from .rules import ALLOW, ASK, DENY, EDIT, FILE_TOOLS, OPEN, REACH, READ, RUN, Finding, Permissions, Rule, fits

if TYPE_CHECKING:
    from .commands import Commands

_FREE = Decision(ALLOW)
_ORDER = (DENY, ASK, ALLOW)
_ABOUT = {"write": "a file is written", "edit": "a file is changed", "bash": "a command runs", "web_fetch": "a page is fetched"}


class RulePolicy:
    """Implements the port Policy.

    Arguments:
        permissions: rules and mode. root: the workspace; home: the person's folder; both absolute.
        tier: gives the sandbox's tier when it is needed.
    """

    def __init__(self, permissions: Permissions, *, root: str, home: str, tier: Callable[[], str]) -> None:
        self._permissions, self._tier, self._place = permissions, tier, Place(root, home)
        self._rules = {verdict: [rule for rule in permissions.rules if rule.verdict == verdict] for verdict in _ORDER}
        self._idle = not permissions.rules and not permissions.attended and not permissions.only_listed

    def barred(self, name: str) -> bool:
        """Whether no call of this tool could ever be allowed, so that no model need hear of it."""
        return any(not rule.spec and rule.names(name) for rule in self._rules[DENY])

    def judge(self, call: Call, tool: Tool, arguments: Mapping[str, Any], brief: Brief) -> Decision:
        """Decide on a call."""
        return self.decide(tool, arguments, brief.mode.within(self._permissions.mode))

    def decide(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> Decision:
        """Decide on what a tool would be asked to do, in a mode."""
        if self._idle and not tool.needs_confirmation and mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS):
            return _FREE
        findings = self.findings(tool, arguments)
        decisions = [self.settled(finding, mode) for finding in findings]
        return min(decisions, key=lambda decision: _ORDER.index(decision.verdict))

    def findings(self, tool: Tool, arguments: Mapping[str, Any]) -> list[Finding]:
        """What is known of each part of a call, before the mode decides."""
        if tool.name != "bash":
            return [self._call(tool, arguments)]
        found = self._commands.judge(str(arguments.get("command", "")))
        return [*found, Finding(ASK, RUN, "without a sandbox each command is confirmed")] if tool.needs_confirmation else found

    @cached_property
    def _commands(self) -> Commands:
        from .commands import Commands  # the shell's grammar costs time, and many sessions judge no command

        return Commands(self._permissions.rules, self._place)

    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> Finding:
        kind = _kind(tool)
        for verdict in _ORDER:
            for rule in self._rules[verdict]:
                if rule.names(tool.name) and self._about(rule, tool.name, arguments):
                    return Finding(verdict, kind, f"a rule says {verdict}", rule)
        if tool.needs_confirmation:
            return Finding(ASK, kind, "the tool asks for confirmation")
        path = _path(tool.name, arguments)
        if kind == EDIT and path and not self._place.inside(path):
            return Finding(OPEN, RUN, f"{path} is outside the folder")
        return Finding(ALLOW if kind == READ else OPEN, kind, _ABOUT.get(tool.name, "it acts outside the folder"))

    def _about(self, rule: Rule, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether what is in a rule's brackets is about this call."""
        if not rule.spec:
            return True
        if tool in FILE_TOOLS:
            return matches(rule, self._place.both(_path(tool, arguments)), self._place, every=rule.verdict == ALLOW)
        key, colon, wanted = rule.spec.partition(":")
        if tool == "web_fetch" and key == "domain":
            return _on(str(arguments.get("url", "")), wanted)
        if tool == "task" and not colon:
            agent = str(arguments.get("agent", ""))
            return _plain(rule.spec) == _plain(agent) or ("*" in rule.spec and fits(rule.spec, agent))
        if tool == "skill" and not colon:
            return fits(rule.spec, str(arguments.get("name", "")))
        return rule.verdict != ALLOW and bool(colon) and fits(wanted, str(arguments.get(key, "")))

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
            return decided(ALLOW, "no rule is against it, and the sandbox holds it")
        return decided(ASK)

    def _trusts(self, kind: str, mode: Mode) -> bool:
        """Whether what no rule is about is done without asking."""
        if not self._permissions.attended:
            return not self._permissions.only_listed or (mode is Mode.ACCEPT_EDITS and kind == EDIT)
        return mode is Mode.ACCEPT_EDITS and (kind == EDIT or (kind == RUN and self._tier() in ("full", "file")))


def _kind(tool: Tool) -> str:
    if tool.name in ("write", "edit"):
        return EDIT
    if tool.effect is Effect.PURE or tool.name in ("task", "self.emitvalue"):
        return READ
    return REACH


def _path(tool: str, arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("file_path") or arguments.get("path") or ".") if tool in FILE_TOOLS else ""


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _on(url: str, domain: str) -> bool:
    """Whether the address is on the domain; *.x.com is every host below x.com."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    domain = domain.strip().lower()
    return host.endswith(domain[1:]) and host != domain[2:] if domain.startswith("*.") else host == domain
