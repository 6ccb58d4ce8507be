"""Workspaces of resumed runs: which machine has their files, and whether they changed any."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind, WorkspaceSpec
from ..._core.events import StoredEvent
from ..._core.runs import Brief
from ..._engine.recorded_conversations import find_workspace, has_effects
from ..._engine.session_context import SessionServices


def restore_workspace(
    brief: Brief, past: Sequence[StoredEvent], services: SessionServices
) -> WorkspaceSpec:
    """Return the workspace of a resumed run, with the machine that has its files.

    A run that has changed nothing begins again here. If another machine has files that the run may
    have changed, the workspace says so.
    """
    spec = brief.workspace
    if services.environments.sees_folder:  # else the session's process has chosen the machine
        spec = find_workspace(past) or spec
    if spec.kind is not WorkspaceKind.ISOLATED or not spec.machine:
        return spec
    if has_effects(past, services.toolbox):
        return replace(spec, has_changes=True)
    return replace(spec, machine="") if services.environments.sees_folder else spec
