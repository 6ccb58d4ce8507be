"""Workspaces of resumed runs: which machine has their files, and whether they changed any."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .._core.agents import WorkspaceKind, WorkspaceSpec
from .._core.events import StoredEvent
from .._core.runs import Brief
from .._engine.recorded_conversations import find_workspace, has_effects
from .._engine.session_context import SessionServices


def locate_files(
    brief: Brief, past: Sequence[StoredEvent], services: SessionServices
) -> WorkspaceSpec:
    """Return the workspace of a resumed run, with the machine that has its files.

    A run that has changed nothing begins again here.
    """
    spec = find_workspace(past)
    if spec is None or not services.environments.sees_folder:
        return brief.workspace  # the session's process has chosen the machine
    if spec.machine and not has_effects(past, services.toolbox):
        return replace(spec, machine="")
    return spec


def mark_changes(
    spec: WorkspaceSpec, past: Sequence[StoredEvent], services: SessionServices
) -> WorkspaceSpec:
    """Mark a workspace on another machine in which a resumed run may have changed files."""
    is_far = spec.kind is WorkspaceKind.ISOLATED and bool(spec.machine)
    if is_far and has_effects(past, services.toolbox):
        return replace(spec, has_changes=True)
    return spec
