"""Parts that the tests of the course's lessons share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, Script, ServerAnswer, ServerRequest

from .conftest import MODEL, Mudroom

_numbers = itertools.count(1)

Turn = ServerAnswer | Script
"""An answer, or a function that makes it from the request."""


def make_call(name: str, /, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(f"call_{next(_numbers)}", name, arguments)


def find_prompt(request: ServerRequest) -> str:
    """Return the first prompt of a request."""
    content = request.messages[0]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def follow(conversations: Mapping[str, Sequence[Turn]]) -> Script:
    """Return a script that knows the turns of each conversation by a text of its first prompt.

    After the last turn a conversation gets the answer "done".
    """

    def answer(request: ServerRequest) -> Any:
        prompt = find_prompt(request)
        turns = next(turns for text, turns in conversations.items() if text in prompt)
        turn = turns[request.turn] if request.turn < len(turns) else "done"
        return turn(request) if callable(turn) else turn

    return answer


def react(answers: Mapping[str, ServerAnswer]) -> Sequence[Turn]:
    """Return turns that answer each text of a last message; any other one is answered "done"."""

    def answer(request: ServerRequest) -> ServerAnswer:
        last = str(request.messages[-1])
        return next((answer for text, answer in answers.items() if text in last), "done")

    return [answer] * 99


async def ask(mudroom: Mudroom, server: ModelServer, prompt: str, *arguments: str) -> str:
    """Run one prompt with all permissions, check its exit code, and return the output."""
    mode = ("--permission-mode", "bypassPermissions")
    done = await mudroom(
        "-p", prompt, *MODEL, *mode, "-o", "stream-json", *arguments, url=server.url
    )
    assert done.code == 0, done.err + done.out
    return done.out


def read_requests(server: ModelServer, text: str) -> list[str]:
    """Return the last message of each request whose first prompt contains a text."""
    return [
        json.dumps(request.messages[-1], ensure_ascii=False)
        for request in server.requests
        if text in find_prompt(request)
    ]


async def list_board(mudroom: Mudroom) -> list[tuple[str, str, list[int]]]:
    """Return the subject, the status and the dependencies of each task."""
    done = await mudroom("board", "list", "--json")
    return [(task["subject"], task["status"], task["waits_for"]) for task in json.loads(done.out)]
