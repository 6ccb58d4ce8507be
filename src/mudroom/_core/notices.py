"""Notices: what the user should know about how a session was opened."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

NoticeKind = Literal["offline", "sandbox", "agents", "style", "unused", "missing", "record"]


class Notice(Struct, frozen=True):
    """A message for the user about how a session was opened.

    Arguments:
        kind: what programs choose by. "offline": no model was found, so the offline model answers.
            "sandbox": how well commands are contained on this machine. "agents": which agents of
            the folder are used, and with what rights. "style": which output style of the folder or
            of a plugin is used. "unused": what was found or asked for and is not used, and why.
            "missing": what runs lack, such as a tool, a server or git. "record": what a resumed
            session has again or has otherwise, and that its record was repaired.
        text: what people read; it may change.

    Example:
        def keep(notice: Notice) -> bool:
            return notice.kind in ("missing", "unused")

        print([notice.text for notice in session.notices if keep(notice)])
    """

    kind: NoticeKind
    text: str

    def __str__(self) -> str:
        return self.text
