"""Slash commands for changed files: diffs, and earlier prompts with their files."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import PurePath

from msgspec.structs import replace

from ...._core.listings import count_noun
from ...._core.ports import Workspace
from ...._engine.file_writes import (
    MAX_VERSION_BYTES,
    find_mode,
    hash_present,
    is_executable,
    is_link_hash,
    read_entry,
)
from ...._platform.open_beneath import remove_empty_folder
from ...._platform.paths import path_from_text
from ...._platform.regular_files import is_binary
from ...._projections.differences import FileChange, diff_texts
from ...._projections.run_view import RunView
from ...._projections.safe_text import sanitize, sanitize_line
from ...._session.session import Session
from ....errors import UsageError, WorkspaceError
from ...actions.prompts import remove_attachments
from ...output.text import Line, split_line
from ...output.tool_call_lines import DIFFERENCE_STYLES
from ..conversation import Conversation

# Answers to the question whether to restore files.
YES, NO, FILES = "yes", "no", "files"

# Lines of diffs to show; the rest is counted.
MAX_LINES = 400


async def diff(conversation: Conversation, words: str) -> None:
    """Show the diff of the session, of one prompt (by number), or of one file."""
    number = int(words) if words.isdecimal() else 0
    log = conversation.file_changes
    changes = log.list_changes(number, number or None)
    observed = log.list_observed(number, number or None)
    if words and not number:
        changes = [change for change in changes if change.path == words]
        observed = [path for path in observed if path == words]
    lines: list[Line] = []
    for change in changes:
        lines += await asyncio.to_thread(_format_change, conversation, change, bool(number))
    columns = conversation.ui.scrollback.columns() - 1
    rows = [row for line in lines[:MAX_LINES] for row in split_line(line, columns)]
    conversation.ui.scrollback.write_lines(*rows)
    if len(lines) > MAX_LINES:
        more = count_noun(len(lines) - MAX_LINES, "more line")
        conversation.print_text(f"{more}: /diff FILE shows one file.", "yellow")
    if observed:
        names = ", ".join(map(sanitize_line, observed))
        conversation.print_text(
            f"Changed while commands ran, without an earlier content: {names}", "dim"
        )
    if not lines and not observed:
        conversation.print_text("No file differs.")


def _format_change(conversation: Conversation, change: FileChange, only_prompt: bool) -> list[Line]:
    """Format a file's diff; empty if there is none.

    `only_prompt`: compare with the content after the last write, if it was kept.
    """
    read_version = conversation.session.read_version
    before = read_version(change.before)
    after = read_version(change.after) if only_prompt else None
    if after is None:
        hashes = (change.before, change.after)
        after = read_file(conversation.session.workspace, change.path, *hashes)
    name = sanitize_line(change.path)
    if before is None:
        return [[(f"{name}: the earlier content was not kept", "bold")]]
    note = _describe_mode(conversation.session.workspace, change, only_prompt=only_prompt)
    if before == after:
        return [[(f"{name}: {note}", "bold")]] if note else []
    if is_binary(before, after):
        return [[(f"{name}: not text{note and f', {note}'}", "bold")]]
    difference = diff_texts(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
    signs = [sign for sign, _ in difference]
    title = f"{name} (+{signs.count('+')} -{signs.count('-')}){note and f', {note}'}"
    rows: list[Line] = [
        [(f"  {sign or ' '} {sanitize(text)}", DIFFERENCE_STYLES.get(sign, "dim"))]
        for sign, text in difference
    ]
    return [[(title, "bold")], *rows]


def _describe_mode(workspace: Workspace, change: FileChange, *, only_prompt: bool) -> str:
    """Describe the change to a file's execute bit as git sees it, "" for none."""
    executable = change.executable
    if not only_prompt and change.old_mode is not None:
        mode = find_mode(workspace, change.path, change.after)
        executable = None if mode is None else is_executable(mode)
    became = replace(change, executable=executable).mode_change
    return {True: "now executable", False: "no longer executable", None: ""}[became]


async def rewind(conversation: Conversation, number: str) -> None:
    """Remove an earlier prompt and all after it, restore files changed since, or both."""
    if conversation.session.interrupted_run:
        raise UsageError(
            "the last prompt is interrupted, and has not ended",
            remedy="Press Ctrl-C twice to end it with its background work, then rewind.",
        )
    runs = _list_prompts(conversation)
    titles = {run.run_id: sanitize_line(run.title) for run in reversed(runs)}
    if not titles:
        conversation.print_text("There is no earlier prompt to rewind to.")
        return
    chosen = number or await conversation.ui.choose(
        "Remove which prompt and all after it?",
        [(run_id, f"prompt {run_id}: {title}") for run_id, title in titles.items()],
    )
    if not chosen:
        return
    if chosen not in titles:
        raise UsageError(
            f"no prompt of the conversation has the number {chosen}",
            remedy=f"The prompts are {', '.join(reversed(titles))}.",
        )
    choice, outcome = await _restore_if_wanted(conversation, int(chosen))
    if choice == FILES:
        text = f"Files were restored to their content before prompt {chosen}. {outcome}"
        conversation.add_to_prompt(f"(By the user: {text})")
        conversation.print_text(f"{text} The conversation stays.", "dim")
    if choice in (None, FILES):
        return
    conversation.session.rewind(chosen)
    conversation.status.rewind(chosen)
    conversation.tree.rewind(chosen)
    run = conversation.tree.runs[chosen]
    conversation.ui.prefill("" if run.description else remove_attachments(run.prompt))
    conversation.print_text(f"Removed prompt {chosen} and all after it. {outcome}", "dim")


async def undo(conversation: Conversation, _: str) -> None:
    """Remove the last prompt and its answer; optionally restore the files."""
    runs = _list_prompts(conversation)
    await rewind(conversation, runs[-1].run_id if runs else "")


def _list_prompts(conversation: Conversation) -> list[RunView]:
    """List the conversation's finished prompts, oldest first."""
    return [run for run in conversation.tree.list_conversation() if run.report]


async def _restore_if_wanted(conversation: Conversation, first: int) -> tuple[str | None, str]:
    """Ask whether to restore the files; return the answer, None to cancel, and the outcome."""
    changes = conversation.file_changes.list_changes(first)
    observed = conversation.file_changes.list_observed(first)
    if not changes:
        names = ", ".join(map(sanitize_line, observed))
        return NO, f"Commands may have changed: {names}." if names else "No file was changed."
    files = count_noun(len(changes), "file")
    choice = await conversation.ui.choose(
        f"Restore {files} to the content before this prompt?",
        [
            (YES, f"yes, restore {files}"),
            (NO, "no, only the conversation"),
            (FILES, f"restore only {files}, and keep the conversation"),
        ],
        body=[[(f"  {sanitize_line(change.path)}", "")] for change in changes],
    )
    if choice == NO:
        return choice, "Files were not changed."
    outcome = ""
    if choice:
        outcome = await asyncio.to_thread(restore_files, conversation.session, changes, observed)
    return choice, outcome or "The files have that content already."


def restore_files(session: Session, changes: list[FileChange], observed: list[str]) -> str:
    """Restore files that still have the content last written; describe the outcome.

    New files are removed first, with folders that become empty, as a landing removes them: a
    restored file may need the name of such a folder, or a folder that of such a file.
    """
    new = [change for change in changes if not change.before]
    outcomes = {change.path: _restore(session, change) for change in new}
    removed = [path for path, is_restored in outcomes.items() if is_restored]
    _remove_empty_folders(session.workspace.root, removed)
    outcomes |= {change.path: _restore(session, change) for change in changes if change.before}
    restored, kept = (
        [change.path for change in changes if outcomes[change.path] is outcome]
        for outcome in (True, False)
    )
    return " ".join(
        f"{title}: {', '.join(map(sanitize_line, paths))}."
        for title, paths in (
            ("Restored", restored),
            ("Not restored, changed since or not kept", kept),
            ("Not restored, changed while commands ran", observed),
        )
        if paths
    )


def _restore(session: Session, change: FileChange) -> bool | None:
    """Restore one file; return whether that was possible, None if its content is unchanged."""
    workspace = session.workspace
    data = session.read_version(change.before)
    current = hash_present(workspace, change.path, change.before, change.after)
    present = find_mode(workspace, change.path, current)
    mode = _choose_mode(change, present)
    has_mode = None in (mode, present) or stat.S_IMODE(mode or 0) == present
    if current == change.before and has_mode:
        return None
    # Someone else has changed the file since, and their work must not be lost.
    if data is None or current not in (change.before, change.after):
        return False
    try:
        if change.before:
            workspace.write(change.path, data, mode=mode)
        else:
            workspace.remove(change.path)
    except (OSError, WorkspaceError):
        return False
    return True


def _remove_empty_folders(root: str, removed: list[str]) -> None:
    names = {path_from_text(path) for path in removed}
    folders = {str(parent) for name in names for parent in PurePath(name).parents} - {"."}
    top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for folder in sorted(folders, reverse=True):
            remove_empty_folder(top, folder)
    finally:
        os.close(top)


def _choose_mode(change: FileChange, present: int | None) -> int | None:
    """Choose a restored file's mode, None to keep the present one.

    The present permission bits stay, with hard links and owner, unless only the work on this file
    changed whether it is executable.
    """
    if is_link_hash(change.before):
        return stat.S_IFLNK
    if is_link_hash(change.after):
        return stat.S_IFREG | (0o644 if change.old_mode is None else change.old_mode)
    if present is None:
        return change.old_mode
    if change.old_mode is None or is_executable(present) == is_executable(change.old_mode):
        return None
    if change.executable is None:  # a command changed the file, or the user recreated it
        return change.old_mode if change.after else None
    return change.old_mode if change.executable == is_executable(present) else None


def read_file(workspace: Workspace, path: str, *hashes: str) -> bytes:
    """Read a file's content, b"" if there is none."""
    try:
        return read_entry(workspace, path, MAX_VERSION_BYTES, *hashes)
    except WorkspaceError:
        return b""
