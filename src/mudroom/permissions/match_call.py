"""Matches rules with calls, using the facts each tool states about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .._core.tools import Tool, ToolCategory
from .path_rules import PathContext, matches_file
from .rules import Rule, Verdict, matches_agent, matches_pattern


class CallMatcher:
    """Matches rules with calls.

    A rule with a path, such as `Read(./secrets/**)`, also applies to other tools that access files
    in the same way: `glob` and `grep` for `read`, `write` for `edit`.

    Arguments:
        tools: the built-in tools by name.
    """

    def __init__(self, context: PathContext, tools: Mapping[str, Tool]) -> None:
        self.context = context
        self.tools = tools

    def applies(self, rule: Rule, tool: Tool) -> bool:
        """Return whether a rule is about a tool."""
        if rule.names(tool.name):
            return True
        access = get_file_access(tool)
        return bool(rule.pattern) and access is not None and access is self.get_rule_access(rule)

    def get_rule_access(self, rule: Rule) -> ToolCategory | None:
        """Return the kind of file access a rule is about, READ or WRITE; None for other rules."""
        tool = self.tools.get(rule.tool)
        return get_file_access(tool) if tool else None

    def applies_to_access(self, rule: Rule, access: ToolCategory) -> bool:
        """Return whether a rule is about any tool with this kind of file access."""
        tools: Iterable[Tool] = self.tools.values()
        return any(self.applies(rule, tool) for tool in tools if get_file_access(tool) is access)

    def matches(self, rule: Rule, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether the pattern in a rule's brackets matches a call."""
        if not rule.pattern:
            return True
        if tool.is_server_tool:
            # The provider runs the tool, so single calls are not seen here: a rule that forbids
            # some calls must forbid all, and one that allows some can allow none.
            return rule.verdict != Verdict.ALLOW
        if tool.path_argument:
            paths = self.context.resolve_links(get_call_path(tool, arguments))
            match_all = rule.verdict == Verdict.ALLOW
            return matches_file(rule, paths, self.context, match_all=match_all)
        key, colon, pattern = rule.pattern.partition(":")
        value = str(arguments.get(tool.rule_argument, ""))
        if tool.category is ToolCategory.NETWORK and key == "domain":
            return _is_on_domain(value, pattern)
        if tool.rule_argument and not colon:
            return _matches_name(rule.pattern, value, tool)
        if rule.verdict == Verdict.ALLOW or not colon:
            return False
        return matches_pattern(pattern, str(arguments.get(key, "")))


def get_file_access(tool: Tool) -> ToolCategory | None:
    """Return READ or WRITE for a tool with a path argument, None for any other."""
    return tool.category if tool.path_argument else None


def get_call_path(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the file or folder a call works on, "" for a tool without a path."""
    if not tool.path_argument:
        return ""
    return str(arguments.get(tool.path_argument) or ".")


def _matches_name(pattern: str, value: str, tool: Tool) -> bool:
    is_agent = tool.category is ToolCategory.AGENT
    return matches_agent(pattern, value) if is_agent else matches_pattern(pattern, value)


def _is_on_domain(url: str, domain: str) -> bool:
    """Return whether a URL's host is the domain; `*.x.com` matches every host below x.com."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    domain = domain.strip().lower()
    if domain.startswith("*."):
        return host.endswith(domain[1:]) and host != domain[2:]
    return host == domain
