"""What the tools of an agent say of single calls: `bash(git:*)` only these, `!read(.env)` not these. Limits never allow anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from .._core.agents import Brief
from .._core.ports import Decision
from .._core.tools import canonical
from ..errors import UsageError
from .match_call import about, path_of
from .path_rules import Place, covers
from .rules import ALLOW, DENY, FILE_TOOLS, Rule, parse_rule

Limited = tuple[tuple[str, ...], ...]
"""The limits that hold for a run: its agent's, and those of all above it; each agent's must let a call pass."""
ORIGIN = "its agent's tools"


def limits_of(brief: Brief) -> Limited:
    """The limits of a run."""
    own = brief.agent.limits if brief.agent.tools else ()
    return (*brief.limits, own) if own else brief.limits


def barred(texts: tuple[str, ...]) -> Iterator[Rule]:
    """What an agent bars, as deny rules; all calls of a tool where it cannot be understood which."""
    for tool, rule in map(_read, (text[1:] for text in texts if text.startswith("!"))):
        yield replace(rule, verdict=DENY) if rule else Rule(DENY, tool, origin=ORIGIN)


class Limit:
    """What one agent allows of the tools it has only in part.

    Arguments:
        texts: see Agent.limits. place: where relative paths begin.
    """

    def __init__(self, texts: tuple[str, ...], place: Place) -> None:
        self._place = place
        self._only = [_read(text) for text in texts if not text.startswith("!")]

    def _of(self, tool: str) -> list[Rule] | None:
        """The rules one of which must fit, None where the tool is not limited."""
        found = [rule for name, rule in self._only if fnmatchcase(tool, name)]
        free = not found or any(rule and not rule.spec for rule in found)
        return None if free else [rule for rule in found if rule]

    def refusal(self, tool: str, arguments: Mapping[str, Any]) -> Decision | None:
        """Why this agent may not make a call; None where it may, as far as this goes."""
        only = self._of(tool)
        if only is None or tool in ("glob", "grep"):
            return None  # what these find goes through `hides`
        if tool == "bash":
            return self._commands(only, str(arguments.get("command", "")))
        if tool == "read" and not self._place.inside(path_of(tool, arguments)):
            return None  # nothing out there can be read but what the run was given: long output, skills
        if any(about(replace(rule, tool=tool), tool, arguments, self._place) for rule in only):
            return None
        return Decision(DENY, _why(tool, only))

    def _commands(self, only: list[Rule], command: str) -> Decision | None:
        from .shell_judge import Commands  # the shell's grammar costs time

        found = Commands(only, self._place, reading=False).judge(command)
        refused = next((finding for finding in found if finding.verdict != ALLOW), None)
        return refused and Decision(DENY, f"{_why('bash', only)}; {refused.why}", part=refused.part)

    def hides(self, tool: str, path: str) -> str:
        """Why a tool that reads may not see an absolute path, "" if it may."""
        only = self._of(tool)
        if only is None or FILE_TOOLS.get(tool) != "read" or not self._place.inside(path):
            return ""
        return (
            ""
            if any(covers(rule, path, self._place, loose=False) for rule in only)
            else _why(tool, only)
        )


def _why(tool: str, only: list[Rule]) -> str:
    specs = ", ".join(f"{tool}({rule.spec})" for rule in only)
    return (
        f"its agent has only {specs}"
        if specs
        else f"what its agent may do with {tool} cannot be understood"
    )


def _read(text: str) -> tuple[str, Rule | None]:
    """The tool a limit is about, and its rule; None if that is none."""
    try:
        rule = parse_rule(text, ALLOW, origin=ORIGIN)
    except UsageError:
        return canonical(text.partition("(")[0]), None
    return rule.tool, rule
