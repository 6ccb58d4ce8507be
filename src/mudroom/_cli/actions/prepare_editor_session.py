"""Makes an editor's sessions from settings, flags, and the user's choices in the editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from mudroom_hosts.acp.setup import EditorSessionPlan

from ..._core.ports import Approver
from ..._session.session import Session
from .load_permissions import load_permissions
from .load_settings import load_settings
from .open_session import create_session
from .programs.load_programs import load_programs
from .session_start import SessionStart


def prepare_session(
    flags: Mapping[str, object], plan: EditorSessionPlan, approver: Approver
) -> Session:
    settings = load_settings(plan.cwd, **flags)
    settings = replace(settings, permission_mode=plan.mode or settings.permission_mode)
    programs = load_programs(settings, plan.cwd)
    names = {server.name for server in plan.servers}
    # The editor's servers replace those of files with the same name; an agent's own servers are
    # known only to that agent.
    from_files = programs.servers if programs else ()
    others = [each for each in from_files if each.agent or each.name not in names]
    servers = [*plan.servers, *others]
    loaded = load_permissions(settings, plan.cwd, can_ask=True, accepts_unknown=True)
    options: dict[str, Any] = {"model": plan.model} if plan.model else {}
    return create_session(
        settings,
        plan.cwd,
        loaded,
        SessionStart(resume=plan.resume, id=plan.id),
        programs=programs,
        mcp_servers=servers,
        approver=approver,
        prices=True,
        tools=plan.tools,
        **options,
    )
