"""Options that say when the engine shortens the conversation of a run."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .type_checks import NamedFields

Percent = Annotated[int, Meta(ge=1, le=100)]


class CompactionOptions(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """When the engine shortens a conversation.

    Arguments:
        auto_compact: shorten a conversation before it fills the context window of its model. If
            not, only `/compact` and the tool `compact` do.
        context_window: context window of the models in tokens, where you know it better than their
            servers and the tables of mudroom.
        clear_at, compact_at: percents of the window from which old tool results are cleared, and
            the conversation is compacted.
    """

    auto_compact: bool = True
    context_window: Annotated[int, Meta(ge=1)] | None = None
    clear_at: Percent = 60
    compact_at: Percent = 85
