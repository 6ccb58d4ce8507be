"""Which calls of tools other than bash a rule is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .path_rules import Place, matches
from .rules import ALLOW, FILE_TOOLS, Rule, fits


def about(rule: Rule, tool: str, arguments: Mapping[str, Any], place: Place) -> bool:
    """Whether what is in a rule's brackets is about this call."""
    if not rule.spec:
        return True
    if tool in FILE_TOOLS:
        return matches(
            rule, place.both(path_of(tool, arguments)), place, every=rule.verdict == ALLOW
        )
    key, colon, wanted = rule.spec.partition(":")
    if tool == "web_fetch" and key == "domain":
        return _on(str(arguments.get("url", "")), wanted)
    if tool == "task" and not colon:
        agent = str(arguments.get("agent", ""))
        return _plain(rule.spec) == _plain(agent) or ("*" in rule.spec and fits(rule.spec, agent))
    if tool == "skill" and not colon:
        return fits(rule.spec, str(arguments.get("name", "")))
    return rule.verdict != ALLOW and bool(colon) and fits(wanted, str(arguments.get(key, "")))


def path_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """The file or folder a file tool is to work on, "" of other tools."""
    return (
        str(arguments.get("file_path") or arguments.get("path") or ".")
        if tool in FILE_TOOLS
        else ""
    )


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
    return (
        host.endswith(domain[1:]) and host != domain[2:]
        if domain.startswith("*.")
        else host == domain
    )
