"""Bridge to models that exist only in the session's process, for worker processes."""

from __future__ import annotations

from collections.abc import Callable

from ...._core.ports import Model, ModelConversation, RequestConfig
from ...._core.tools import Tool, ToolResult
from .messages import (
    ErrorInfo,
    ModelAppend,
    ModelForget,
    ModelItem,
    ModelRequest,
    ModelStart,
    ToolSpec,
)

ConversationMessage = ModelStart | ModelAppend | ModelForget


class ModelBridge:
    """Conversations with models, held for one worker process.

    A model that refuses a conversation or a message answers the next request with its error.

    Arguments:
        get_model: returns the Model of a model string.
        send: sends an item of an answer to the worker process.
    """

    def __init__(
        self, get_model: Callable[[str], Model], send: Callable[[ModelItem], None]
    ) -> None:
        self._get_model = get_model
        self._send = send
        self._conversations: dict[int, ModelConversation | ErrorInfo] = {}

    def handle(self, message: ConversationMessage) -> None:
        """Start, extend or end a conversation."""
        if isinstance(message, ModelStart):
            self._conversations[message.conversation] = self._start(message)
        elif isinstance(message, ModelAppend):
            self._append(message)
        else:
            self._conversations.pop(message.conversation, None)

    def close(self) -> None:
        """Forget all conversations."""
        self._conversations.clear()

    def _append(self, message: ModelAppend) -> None:
        conversation = self._conversations[message.conversation]
        if not isinstance(conversation, ErrorInfo):
            try:
                conversation.append(message.message)
            except Exception as error:  # noqa: BLE001  the run in the worker process must end
                self._conversations[message.conversation] = ErrorInfo.of(error)

    def _start(self, message: ModelStart) -> ModelConversation | ErrorInfo:
        config = RequestConfig(
            system=message.system,
            tools=tuple(_offer_tool(spec) for spec in message.tools),
            temperature=message.temperature,
            top_p=message.top_p,
            max_tokens=message.max_tokens,
            server_tools=message.server_tools,
            effort=message.effort,
            cache_key=message.cache_key,
        )
        try:
            return self._get_model(message.model).start_conversation(config)
        except Exception as error:  # noqa: BLE001  the run in the worker process must end
            return ErrorInfo.of(error)

    async def answer(self, request: ModelRequest) -> None:
        """Have a model answer, and send each item. Raises what the model raises."""
        conversation = self._conversations[request.conversation]
        if isinstance(conversation, ErrorInfo):
            self._send(ModelItem(request.id, conversation))
            return
        async for item in conversation.request_answer(
            tools=request.tools, max_tokens=request.max_tokens
        ):
            self._send(ModelItem(request.id, item))


def _offer_tool(spec: ToolSpec) -> Tool:
    """Return a tool for the model's request; its calls run in the worker process."""

    async def refuse(_: object, __: object) -> ToolResult:
        return ToolResult(f"{spec.name} runs in the worker process", error=True)

    return Tool(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        parse=dict,
        run=refuse,
    )
