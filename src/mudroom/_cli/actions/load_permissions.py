"""Permissions from settings files and flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from ..._adapters.agent_files.locations import SOURCES, find_places
from ..._core.agents import Mode
from ..._core.tool_names import SERVER_PREFIX, is_known_elsewhere, make_server_pattern
from ..._session.config import Settings
from ...errors import UnknownName, UsageError
from ...permissions import rules as permission_files
from ...permissions.approved_rules import load_approved
from ...permissions.rules import Permissions, Rule, Verdict, parse_rules, split_rules

if TYPE_CHECKING:
    from ...permissions.policy import RulePolicy


class LoadedPermissions(NamedTuple):
    permissions: Permissions
    notices: tuple[str, ...]


def load_permissions(
    settings: Settings,
    cwd: str,
    *,
    can_ask: bool = False,
    default_mode: Mode = Mode.DEFAULT,
    accepts_unknown: bool = False,
    servers: Iterable[str] | None = None,
    sources: Collection[str] = SOURCES,
) -> LoadedPermissions:
    """Load the permissions from files and flags.

    With `accepts_unknown`, a flag's rule for an unknown tool is a notice, not an error. `servers`
    are the names of the session's MCP servers, None if not yet known; `sources` names whose
    settings files to read. Raises UsageError for a wrong rule or an unknown tool in a flag, or for
    a mode forbidden by settings files.
    """
    places = find_places(sources, cwd, os.environ.get("HOME", ""))
    from_files = permission_files.load_permission_files(
        places.folder, user_home=places.user_home, reads_local=places.reads_local
    )
    approved = load_approved(settings.home, cwd)
    allowed = _parse_setting(settings, "allowed_tools", Verdict.ALLOW)
    denied = _parse_setting(settings, "disallowed_tools", Verdict.DENY)
    if settings.permission_mode:
        mode = Mode(settings.permission_mode)
    else:
        mode = from_files.mode or default_mode
    if mode is Mode.BYPASS and from_files.forbids_bypass:
        raise UsageError(
            "settings forbid bypassPermissions mode",
            remedy="Remove the flag, or disableBypassPermissionsMode from the settings.",
        )
    notices = [*from_files.notices]
    for rule in (*allowed, *denied):
        if rule.tool.startswith(SERVER_PREFIX) and _may_name_server(rule, servers):
            continue
        error = _find_unknown_tool(rule)
        if error and not (accepts_unknown or is_known_elsewhere(rule.tool)):
            raise error
        if error:
            notices.append(f"the rule has no effect, this tool is not available here: {rule}")
    # Files are shared with other programs, whose tools mudroom may lack.
    for rule in from_files.rules:
        error = _find_unknown_tool(rule)
        if error and not is_known_elsewhere(rule.tool):
            notices.append(f"the rule has no effect: {error}")
    permissions = Permissions(
        rules=(*from_files.rules, *approved, *allowed, *denied),
        mode=mode,
        can_ask=can_ask,
        # A list of what is allowed means that nothing else is.
        denies_unlisted=bool(allowed),
    )
    return LoadedPermissions(permissions, tuple(notices))


def _find_unknown_tool(rule: Rule) -> UnknownName | None:
    from ..._session.agent_catalog import KNOWN_TOOLS  # slow to import

    if any(rule.names(tool) for tool in KNOWN_TOOLS):
        return None
    return UnknownName("tool", rule.tool, KNOWN_TOOLS, where=rule.origin)


def _may_name_server(rule: Rule, servers: Iterable[str] | None) -> bool:
    """Return whether a rule names a server's tools; true while servers are unknown (None)."""
    if servers is None:
        return True
    patterns = [make_server_pattern(server) for server in servers]
    # Either side may be the pattern: a rule for many servers, or one for a single tool.
    return any(fnmatchcase(rule.tool, each) or fnmatchcase(each, rule.tool) for each in patterns)


def make_policy(
    permissions: Permissions, cwd: str, *, tier: Callable[[], str] = lambda: "off"
) -> RulePolicy:
    """Make a folder's policy, by default without a sandbox."""
    from ..._adapters.tools import make_builtin_tools
    from ...permissions.policy import RulePolicy  # slow to import, as is the next one

    return RulePolicy(
        permissions,
        workspace=os.path.realpath(cwd),
        user_home=os.environ.get("HOME", "/"),
        tools=make_builtin_tools(),
        tier=tier,
    )


def is_trusted(settings: Settings, cwd: str) -> bool:
    from ...permissions import trust

    return settings.trust or trust.is_trusted(settings.home, cwd)


def _parse_setting(settings: Settings, name: str, verdict: Verdict) -> tuple[Rule, ...]:
    origin = settings.get_origin(name)
    if origin == "flag":
        origin = f"--{name.replace('_', '-')}"
    return parse_rules(split_rules([getattr(settings, name)]), verdict, origin=origin)
