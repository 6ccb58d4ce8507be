"""Notes for the model about what a sandbox refused, added to a command's output."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..._platform.lazy_pattern import compile_later

_TAIL_BYTES = 4096
_REFUSAL = compile_later(
    rb"[Rr]ead-only file system|EROFS|Operation not permitted|EPERM|Permission denied|EACCES"
    rb"|Network is unreachable|ENETUNREACH|[Cc]ould not resolve|[Nn]ame resolution"
    rb"|[Nn]ame or service not known|Cannot assign requested address|EAI_AGAIN"
)
_NOT_FOUND = compile_later(rb"(/[^\s:'\"]+)['\"]?: No such file or directory")


class TailSink:
    """Sink that passes output on and keeps its last bytes."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self.tail = b""

    def __call__(self, chunk: bytes) -> None:
        """Pass a chunk on."""
        self.tail = (self.tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self._sink(chunk)


def make_notes(
    tail: bytes, *, code: int, restored: Sequence[str], tier: str, workspace: str
) -> bytes:
    """Return the lines that explain refusals to the model, b"" if there are none.

    Arguments:
        tail: the end of the command's output.
        restored: protected files that the command changed.
    """
    notes = [
        f"[sandbox: {path} is protected and may not be changed: what the command did to it was "
        "undone. Ask the user to do it.]"
        for path in restored
    ]
    if code != 0 and not restored and (_REFUSAL.search(tail) or _is_hidden(tail, workspace)):
        notes.append(
            f"[sandbox {tier}: commands may write only in {workspace} and in temporary folders, "
            "not to protected files (hooks and settings of git, agents, editors, shells), and "
            "reach neither the network nor other programs. If the command failed for that reason, "
            "do without it, or ask the user.]"
        )
    if not notes:
        return b""
    line_break = "" if tail.endswith(b"\n") or not tail else "\n"
    return f"{line_break}{chr(10).join(notes)}\n".encode()


def _is_hidden(tail: bytes, workspace: str) -> bool:
    """Return whether the output calls a path missing that exists outside the sandbox."""
    paths = {os.fsdecode(path) for path in _NOT_FOUND.findall(tail)}
    inside = workspace.rstrip("/") + "/"
    return any(not path.startswith(inside) and os.path.lexists(path) for path in paths)
