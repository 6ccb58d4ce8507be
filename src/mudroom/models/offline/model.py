"""The port Model, answered by rules: sees what a model sees, touches nothing, says only what the tools returned."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mudroom._core.messages import Assistant, Message, StopReason, Text, Usage
from mudroom._core.ports import Piece, Retry, Setup
from mudroom.errors import ModelRefused

from .conversation import Reply, reply, size
from .plan import Beyond
from .replies import REMEDY

_PIECE = 400


class OfflineModel:
    """A model that needs no key and no network.

    It knows a handful of questions about a folder of source files, in English and Chinese. Asked for anything else, it says
    what it can do by raising ModelRefused.
    """

    name = "offline:rules"

    def chat(self, setup: Setup) -> RulesChat:
        """Begin a conversation."""
        return RulesChat(setup)

    async def close(self) -> None:
        """Nothing to let go of."""


class RulesChat:
    """One conversation with the rules."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._messages: list[Message] = []
        self._characters = len(setup.system)

    def add(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._characters += size(message)

    async def ask(self, *, tools: bool = True) -> AsyncIterator[Piece | Retry | Assistant]:
        """The next answer, its words in pieces first. Raises ModelRefused for a question the rules do not know."""
        try:
            answer = reply(self._setup, self._messages, calls=tools)
        except Beyond as beyond:
            raise ModelRefused(str(beyond), remedy=REMEDY) from None
        for start in range(0, len(answer.text), _PIECE):
            yield Piece("text", answer.text[start : start + _PIECE])
        yield self._assistant(answer)

    def _assistant(self, answer: Reply) -> Assistant:
        content = answer.calls or (Text(answer.text),)
        stop = StopReason.CALLS if answer.calls else StopReason.END
        draft = Assistant(content, stop=stop, model="rules", wire="offline")
        usage = Usage(input_tokens=-(-self._characters // 4), output_tokens=-(-size(draft) // 4))
        return Assistant(content, stop=stop, usage=usage, model="rules", wire="offline")
