"""Maximum tokens of one request: the smallest of its own, the config's and the model's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mudroom import UserMessage
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models._wire import WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._core.messages import TextBlock
from mudroom._core.ports import RequestConfig
from mudroom.testing import FakeClock

WIRES: dict[str, tuple[type[WireModel], str]] = {
    "anthropic": (AnthropicModel, "claude-sonnet-4-5"),
    "google": (GoogleModel, "gemini-2.5-pro"),
    "openai": (OpenAIModel, "gpt-4.1"),
    "openai-responses": (ResponsesModel, "gpt-5"),
}


def find_max_tokens(body: dict[str, Any]) -> int:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    fields = body | body.get("generationConfig", {})
    return next(fields[name] for name in names if name in fields)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_may_lower_the_maximum_and_never_raise_it(wire: str) -> None:
    kind, model = WIRES[wire]
    served = kind(model, http=HttpClient(clock=FakeClock()))

    def build(of_config: int | None, of_request: int | None) -> dict[str, Any]:
        conversation = served.start_conversation(RequestConfig(system="s", max_tokens=of_config))
        conversation.append(UserMessage((TextBlock("hello"),)))
        return json.loads(conversation.build_body(max_tokens=of_request))

    maximum = find_max_tokens(build(None, None))
    assert find_max_tokens(build(None, 123)) == 123
    assert find_max_tokens(build(None, 10**9)) == maximum
    assert find_max_tokens(build(50, None)) == 50
    assert find_max_tokens(build(50, 123)) == 50
    assert find_max_tokens(build(500, 123)) == 123
    assert len(build(None, 123)) == len(build(None, None))
