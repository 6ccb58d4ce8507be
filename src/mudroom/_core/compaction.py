"""Options for shortening long conversations."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .type_checks import NamedFields

Percent = Annotated[int, Meta(ge=1, le=100)]


class CompactionOptions(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """When the engine shortens a conversation.

    Arguments:
        auto_compact: shorten a conversation before it fills its model's context window. When
            off, only `/compact` and the tool `compact` do.
        context_window: context window in tokens; overrides what the model's server and
            mudroom's tables say.
        clear_at, compact_at: percentage of the window at which old tool results are cleared, and
            at which the conversation is compacted.
    """

    auto_compact: bool = True
    context_window: Annotated[int, Meta(ge=1)] | None = None
    clear_at: Percent = 60
    compact_at: Percent = 85
