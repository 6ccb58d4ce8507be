"""The port Policy by rules: what each call may do, in which mode, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from .._core.agents import Brief, Mode
from .._core.messages import ToolCallBlock
from .._core.ports import PermissionVerdict, Workspace
from .._core.tools import Effect, Tool
from .agent_limits import AgentLimit, ToolLimits, collect_limits, make_deny_rules
from .filtered_workspace import FilteredWorkspace
from .match_call import matches_call, path_argument
from .path_rules import PathContext, covers_path
from .rules import ALLOW, ASK, DENY, EDIT, EXTERNAL, READ, RUN, UNDECIDED, CallFinding, Permissions

if TYPE_CHECKING:
    from .shell_judge import CommandJudge

_SANDBOXED = "no rule is against it, and the sandbox holds it"
_ALLOWED = PermissionVerdict(ALLOW, _SANDBOXED)
_STRICTEST_FIRST = (DENY, ASK, ALLOW)
_EFFECT_TEXTS = {
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
        self._permissions, self._tier, self._place = permissions, tier, PathContext(root, home)
        self._rules = {
            verdict: [rule for rule in permissions.rules if rule.verdict == verdict]
            for verdict in _STRICTEST_FIRST
        }
        self._read_denials = [
            rule for rule in self._rules[DENY] if rule.spec and rule.applies_to("read")
        ]
        self._narrowed: dict[ToolLimits, tuple[RulePolicy, list[AgentLimit]]] = {}
        self._allows_all = (
            not permissions.rules and not permissions.attended and not permissions.only_listed
        )

    def is_never_allowed(self, name: str) -> bool:
        """Whether no call of this tool could ever be allowed, so that no model need hear of it."""
        return any(not rule.spec and rule.applies_to(name) for rule in self._rules[DENY])

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Decide on a call."""
        mode = brief.mode.limit_to(self._permissions.mode)
        if not (held := collect_limits(brief)):
            return self.decide(tool, arguments, mode)
        stricter, limits = self._narrow_to(held)
        refusals = (limit.find_refusal(tool.name, arguments) for limit in limits)
        return next(filter(None, refusals), None) or stricter.decide(tool, arguments, mode)

    def view(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """The workspace without the files this tool may not read in this run."""
        held = collect_limits(brief)
        if not held and not self._read_denials:
            return workspace
        stricter, limits = self._narrow_to(held)

        def barring(path: str) -> str:
            rule = next(
                (
                    rule
                    for rule in stricter._read_denials
                    if covers_path(rule, path, self._place, ignore_case=True)
                ),
                None,
            )
            return (
                f"a rule says so: {rule}"
                if rule
                else next(
                    filter(None, (limit.find_read_refusal(tool, path) for limit in limits)), ""
                )
            )

        return cast("Workspace", FilteredWorkspace(workspace, barring))

    def _narrow_to(self, held: ToolLimits) -> tuple[RulePolicy, list[AgentLimit]]:
        """This policy with what agents bar as deny rules, and what they allow alone."""
        if held not in self._narrowed:
            rules = (
                *self._permissions.rules,
                *(rule for texts in held for rule in make_deny_rules(texts)),
            )
            permissions = replace(self._permissions, rules=rules)
            stricter = RulePolicy(
                permissions, root=self._place.workspace, home=self._place.user_home, tier=self._tier
            )
            self._narrowed[held] = stricter, [AgentLimit(texts, self._place) for texts in held]
        return self._narrowed[held]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> PermissionVerdict:
        """Decide on what a tool would be asked to do, in a mode."""
        if (
            self._allows_all
            and not tool.needs_confirmation
            and mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS)
        ):
            return _ALLOWED
        findings = self.collect_findings(tool, arguments)
        decisions = [self.apply_mode(finding, mode) for finding in findings]
        return min(decisions, key=lambda decision: _STRICTEST_FIRST.index(decision.verdict))

    def collect_findings(self, tool: Tool, arguments: Mapping[str, Any]) -> list[CallFinding]:
        """What is known of each part of a call, before the mode decides."""
        if tool.name != "bash":
            return [self._judge_call(tool, arguments)]
        found = self._command_judge.judge(str(arguments.get("command", "")))
        return (
            [*found, CallFinding(ASK, RUN, "without a sandbox each command is confirmed")]
            if tool.needs_confirmation
            else found
        )

    @cached_property
    def _command_judge(self) -> CommandJudge:
        from .shell_judge import (
            CommandJudge,  # the shell's grammar costs time, and many sessions judge no command
        )

        return CommandJudge(self._permissions.rules, self._place)

    def _judge_call(self, tool: Tool, arguments: Mapping[str, Any]) -> CallFinding:
        kind = _kind(tool)
        for verdict in _STRICTEST_FIRST:
            for rule in self._rules[verdict]:
                if rule.applies_to(tool.name) and matches_call(
                    rule, tool.name, arguments, self._place
                ):
                    return CallFinding(verdict, kind, f"a rule says {verdict}", rule)
        if tool.needs_confirmation:
            return CallFinding(ASK, kind, "the tool asks for confirmation")
        path = path_argument(tool.name, arguments)
        if kind == EDIT and path and not self._place.is_inside(path):
            return CallFinding(UNDECIDED, RUN, f"{path} is outside the folder")
        return CallFinding(
            ALLOW if kind == READ else UNDECIDED,
            kind,
            _EFFECT_TEXTS.get(tool.name, "it acts outside the folder"),
        )

    def apply_mode(self, finding: CallFinding, mode: Mode) -> PermissionVerdict:
        """The mode's word on a finding."""
        rule = str(finding.rule) if finding.rule else ""

        def decided(verdict: str, why: str = "") -> PermissionVerdict:
            return PermissionVerdict(verdict, why or finding.why, rule, finding.command)

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
        if finding.verdict == UNDECIDED and self._is_trusted(finding.kind, mode):
            return decided(ALLOW, _SANDBOXED)
        return decided(ASK)

    def _is_trusted(self, kind: str, mode: Mode) -> bool:
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
    return EXTERNAL
