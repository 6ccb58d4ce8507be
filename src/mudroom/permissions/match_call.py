"""Which calls of tools other than bash a rule is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .path_rules import PathContext, matches_file
from .rules import ALLOW, FILE_TOOLS, Rule, matches_pattern


def matches_call(rule: Rule, tool: str, arguments: Mapping[str, Any], place: PathContext) -> bool:
    """Whether what is in a rule's brackets is about this call."""
    if not rule.spec:
        return True
    if tool in FILE_TOOLS:
        return matches_file(
            rule,
            place.path_and_target(path_argument(tool, arguments)),
            place,
            match_all=rule.verdict == ALLOW,
        )
    key, colon, wanted = rule.spec.partition(":")
    if tool == "web_fetch" and key == "domain":
        return _is_on_domain(str(arguments.get("url", "")), wanted)
    if tool == "task" and not colon:
        agent = str(arguments.get("agent", ""))
        return _normalize_name(rule.spec) == _normalize_name(agent) or (
            "*" in rule.spec and matches_pattern(rule.spec, agent)
        )
    if tool == "skill" and not colon:
        return matches_pattern(rule.spec, str(arguments.get("name", "")))
    return (
        rule.verdict != ALLOW
        and bool(colon)
        and matches_pattern(wanted, str(arguments.get(key, "")))
    )


def path_argument(tool: str, arguments: Mapping[str, Any]) -> str:
    """The file or folder a file tool is to work on, "" of other tools."""
    return (
        str(arguments.get("file_path") or arguments.get("path") or ".")
        if tool in FILE_TOOLS
        else ""
    )


def _normalize_name(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _is_on_domain(url: str, domain: str) -> bool:
    """Whether the address is on the domain; *.x.com is every host below x.com."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    domain = domain.strip().lower()
    return (
        host.endswith(domain[1:]) and host != domain[2:]
        if domain.startswith("*.")
        else host == domain
    )
