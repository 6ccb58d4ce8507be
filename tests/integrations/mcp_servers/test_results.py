"""What runs get of a server: results of every kind, effects of tools, what the host declares."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from mudroom import Agent, ApprovalDecision, Effect, ModelOptions, ServerSpec
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, make_tool
from mudroom._adapters.models.scripted import Answer, Request, call

from ...tools.test_files import make_png
from .servers import make_quick, make_small, read_log
from .test_elicitation import ALLOW, Person
from .test_session_servers import open_session

SECRET = "a-secret-of-this-test-5521"


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def give(folder: Path, *given: dict[str, Any]) -> list[Any]:
    """Return what a model reads of a server's results with these contents."""
    agent = Agent(name="caller", instructions="", tools=("mcp__quick__give",))
    seen: list[Any] = []

    def answer(request: Request) -> Answer:
        seen.extend(request.results)
        return "done" if request.turn else [call("mcp__quick__give", **each) for each in given]

    environ = {"TEST_TOKEN": SECRET}
    async with open_session(
        folder,
        answer,
        [make_quick(fault="gives")],
        agent=agent,
        model_options=ModelOptions(takes_images=True),
        environ=environ,
    ) as session:
        await session.run("Call.")
    return seen


async def test_each_kind_of_content_reaches_the_model(tmp_path: Path) -> None:
    image, sound, wide = make_png(), b"RIFF sound", make_png(8_001, 1)
    link = {"type": "resource_link", "uri": "docs://style", "name": "style", "title": "Style guide"}
    embedded = {"uri": "docs://b", "mimeType": "application/pdf", "blob": encode(b"%PDF")}
    seen = await give(
        tmp_path,
        {"content": [text("one"), text("two")], "structuredContent": {"a": 1}},
        {"content": [], "structuredContent": {"a": [1]}},
        {"content": [{"type": "image", "data": encode(image), "mimeType": "image/png"}]},
        {"content": [{"type": "audio", "data": encode(sound), "mimeType": "audio/x-wav"}],
         "structuredContent": {"b": 2}},
        {"content": [link, {"type": "resource", "resource": {"uri": "docs://a", "text": "A"}}]},
        {"content": [{"type": "resource", "resource": embedded}]},
        {"content": [text("no such row")], "isError": True},
        {"content": [{"type": "image", "data": encode(wide), "mimeType": "image/png"}]},
        {"content": [text(f"the token is {SECRET}")]},
        {"content": [text("line\n" * 20_000 + "end")]},
        {"content": []},
        {"content": [{"type": "image", "data": "%%%", "mimeType": "image/png"}]},
        {"content": [{"type": "image", "data": encode(image[:-9]), "mimeType": "image/png"}]},
        {"content": [{"type": "image", "data": encode(b"<svg/>"), "mimeType": "image/svg+xml"}]},
    )  # fmt: skip
    texts = [each.text for each in seen]
    assert texts[0] == "one\ntwo"
    assert texts[1] == '{"a":[1]}'
    assert seen[2].images[0].data == image
    assert read_file(texts[2], ".png") == image
    assert texts[3].startswith('{"b":2}\n[audio/x-wav, 10 bytes, in ')
    assert read_file(texts[3], ".wav") == sound
    assert texts[4] == "docs://style (Style guide)\ndocs://a:\nA"
    assert read_file(texts[5], ".pdf") == b"%PDF"
    assert seen[6].error and texts[6] == "no such row"
    assert [each.error for each in seen].count(True) == 1
    # A provider refuses larger images, and the conversation would keep this one.
    assert not seen[7].images and read_file(texts[7], ".png") == wide
    assert "cannot be shown to you: a side has more than 8,000 pixels]" in texts[7]
    assert not seen[12].images and "to you: the file is incomplete or damaged]" in texts[12]
    assert not seen[13].images and "to you: it is no PNG, JPEG, GIF or WebP file]" in texts[13]
    assert "cannot be shown" not in texts[2] + texts[3] + texts[5]
    assert SECRET not in texts[8] and "[redacted: $TEST_TOKEN]" in texts[8]
    assert len(texts[9]) < 51_000 and read_file(texts[9], ".txt").endswith(b"\nend")
    assert texts[10] == "(no output)"
    assert texts[11] == "[image/png: the server sent no valid base64]"
    files = [
        Path(found).name for found in re.findall(r"(/\S+/\S+-content\d+-\w+\.\w+)", str(texts))
    ]
    folder = Path(re.findall(r"(/\S+)/\S+-content\d+-\w+\.\w+", texts[2])[0])
    assert {each.name for each in folder.glob("*-content*")} == set(files), "no empty files"


def read_file(shown: str, ending: str) -> bytes:
    """Return the content of the file that a text names."""
    (path,) = re.findall(rf"(/[^\s\]]+{re.escape(ending)})", shown)
    return Path(path).read_bytes()


def make_listed(spec: ServerSpec, *, is_read_only: bool = True) -> tuple[Effect, bool]:
    async def run_call(*_: Any) -> Any:
        raise NotImplementedError

    tool = make_tool(spec, ListedTool("x", "", {}, is_read_only, True), run_call)
    return tool.effect, tool.is_parallel


def test_annotations_count_only_for_a_trusted_server() -> None:
    assert make_listed(make_quick()) == (Effect.EFFECTFUL, False)
    assert make_listed(make_quick(is_trusted=True)) == (Effect.PURE, False)
    assert make_listed(make_quick(is_trusted=True), is_read_only=False)[0] is Effect.EFFECTFUL
    assert make_listed(make_quick(is_parallel=True)) == (Effect.EFFECTFUL, True)


async def test_old_servers_may_ask_for_the_folder_and_none_for_model_calls(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = Agent(name="caller", instructions="", tools=("mcp__quick__request",))
    sampling: dict[str, Any] = {"messages": [], "maxTokens": 5}
    seen: list[str] = []

    def answer(request: Request) -> Answer:
        seen.extend(result.text for result in request.results)
        calls = [
            call("mcp__quick__request", method="roots/list"),
            call("mcp__quick__request", method="sampling/createMessage", params=sampling),
        ]
        return "done" if request.turn else calls

    server = make_quick(fault="gives", log=log)
    async with open_session(tmp_path, answer, [server], agent=agent) as session:
        await session.run("Call.")
    roots = json.loads(seen[0])["roots"]
    assert roots == [{"uri": (tmp_path / "work").as_uri(), "name": "work"}]
    assert json.loads(seen[1])["code"] < 0
    (declared,) = [line for line in read_log(log) if line.startswith("capabilities ")]
    assert {"roots", "elicitation"} == json.loads(declared.removeprefix("capabilities ")).keys()


async def test_a_server_of_the_new_era_works(tmp_path: Path) -> None:
    calls = [
        call("mcp_call", tool="small__add", arguments={"a": 20, "b": 22}),
        call("mcp_call", tool="small__draw", arguments={}),
        call("mcp_call", tool="small__fail", arguments={"text": "no"}),
        call("mcp_call", tool="small__host", arguments={}),
        call("mcp_call", tool="small__paint", arguments={}),
    ]
    seen: list[Any] = []

    def answer(request: Request) -> Answer:
        seen.extend(request.results)
        return [[call("mcp_find", query="add")], calls, "done"][request.turn]

    person = Person(ApprovalDecision(True, arguments={"color": "red"}))
    async with open_session(
        tmp_path,
        answer,
        [make_small()],
        model_options=ModelOptions(takes_images=True),
        approver=person,
        permissions=ALLOW,
    ) as session:
        await session.run("Work.")
    _, added, drawn, failed, host, painted = seen
    assert (added.text, painted.text) == ("42", "2 times red")
    assert drawn.images[0].media_type == "image/png"
    assert failed.error
    assert "sampling" not in json.loads(host.text) and "elicitation" in json.loads(host.text)
    assert [request.run_id for request in person.requests] == ["1"]
