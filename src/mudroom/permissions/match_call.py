"""Matching of rules with calls of tools other than bash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .path_rules import PathContext, matches_file
from .rules import FILE_TOOLS, Rule, Verdict, matches_pattern


def matches_call(rule: Rule, tool: str, arguments: Mapping[str, Any], context: PathContext) -> bool:
    """Return whether the pattern in a rule's brackets matches this call."""
    if not rule.spec:
        return True
    if tool in FILE_TOOLS:
        paths = context.path_and_target(path_argument(tool, arguments))
        return matches_file(rule, paths, context, match_all=rule.verdict == Verdict.ALLOW)
    key, colon, pattern = rule.spec.partition(":")
    if tool == "web_fetch" and key == "domain":
        return _is_on_domain(str(arguments.get("url", "")), pattern)
    if tool == "task" and not colon:
        agent = str(arguments.get("agent", ""))
        if _normalize_name(rule.spec) == _normalize_name(agent):
            return True
        return "*" in rule.spec and matches_pattern(rule.spec, agent)
    if tool == "skill" and not colon:
        return matches_pattern(rule.spec, str(arguments.get("name", "")))
    if rule.verdict == Verdict.ALLOW or not colon:
        return False
    return matches_pattern(pattern, str(arguments.get(key, "")))


def path_argument(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the file or folder that a file tool works on, "" for other tools."""
    if tool not in FILE_TOOLS:
        return ""
    return str(arguments.get("file_path") or arguments.get("path") or ".")


def _normalize_name(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _is_on_domain(url: str, domain: str) -> bool:
    """Return whether the URL's host is the domain. `*.x.com` matches every host below x.com."""
    from urllib.parse import urlsplit

    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    domain = domain.strip().lower()
    if domain.startswith("*."):
        return host.endswith(domain[1:]) and host != domain[2:]
    return host == domain
