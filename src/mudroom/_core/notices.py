"""Notices: what the user should know about how a session was opened."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

NoticeKind = Literal["offline", "sandbox", "agents", "style", "unused", "missing", "record"]


class Notice(Struct, frozen=True):
    """A message for the user about how a session was opened.

    Programs choose notices by their kind; the text is for people, and may change.

    | kind | the text says |
    |---|---|
    | `offline` | no model was found, so the offline model answers (only on the command line) |
    | `sandbox` | commands are not contained as well as they could be |
    | `agents` | which agents of the folder are used, and with what rights |
    | `style` | which output style of the folder or of a plugin is used |
    | `unused` | what was found or asked for and is not used, and why |
    | `missing` | what runs lack: a tool, a server, git |
    | `record` | what a resumed session has again or has changed; that its file was repaired |

    Example:
        print([notice.text for notice in session.notices if notice.kind == "missing"])
    """

    kind: NoticeKind
    text: str

    def __str__(self) -> str:
        return self.text
