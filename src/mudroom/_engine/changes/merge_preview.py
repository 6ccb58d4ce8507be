"""The changes of a merge as lines, for the user who confirms it."""

from __future__ import annotations

from collections.abc import Iterator
from stat import S_ISLNK

from ..._core.counts import count_noun
from ..._core.ports import Isolation, MergedFile, MergePlan
from ..._core.tools import PreviewLine
from ..._platform.binary_files import is_binary
from ...projections.differences import diff_texts

MAX_LINES = 400
"""Lines of differences; further files are named without their differences."""

_MAX_BYTES = 1_000_000
"""Size up to which a content is compared."""


def preview_merge(plan: MergePlan, isolation: Isolation) -> tuple[PreviewLine, ...]:
    """Return each file of a merge with the difference to the present content.

    The function blocks: call it in a thread.
    """
    lines: list[PreviewLine] = []
    for file in plan.files:
        difference = list(_compare(file, isolation)) if len(lines) < MAX_LINES else []
        signs = [sign for sign, _ in difference]
        counts = f" (+{signs.count('+')} -{signs.count('-')})" if difference else ""
        lines.append(("", f"{_describe(file)}{counts}"))
        room = max(0, MAX_LINES - len(lines))
        lines += difference[:room]
        if len(difference) > room:
            lines.append(("", f"and {count_noun(len(difference) - room, 'more line')}"))
    return tuple(lines)


def _describe(file: MergedFile) -> str:
    kind = "link" if (S_ISLNK(file.mode) if file.after else file.was_link) else "file"
    if not file.before:
        return f"new {kind} {file.path}"
    if not file.after:
        return f"removed {kind} {file.path}"
    return f"link {file.path}" if kind == "link" or file.was_link else file.path


def _compare(file: MergedFile, isolation: Isolation) -> Iterator[PreviewLine]:
    before, after = isolation.read(file.before), isolation.read(file.after)
    if max(len(before), len(after)) > _MAX_BYTES or is_binary(before, after):
        yield ("", f"{len(before):,} bytes now, {len(after):,} bytes then")
        return
    yield from diff_texts(before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
