"""What holds for every wire: bodies that only grow, and answers that are whole or none."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from mudroom._adapters.models._http import StreamCut, StreamError
from mudroom._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom.errors import ModelGarbled
from mudroom.testing.wire_formats import WireAnswer

from .wires import (
    ADDRESS,
    ANTHROPIC,
    GOOGLE,
    OLLAMA,
    OPENAI,
    RESPONSES,
    WIRES,
    Json,
    Wire,
    find_arguments,
    make_tool,
)

TOOLS = (make_tool("read"), make_tool("self.emitvalue"))
CONFIG = RequestConfig(system="Be brief.", tools=TOOLS)
CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'
CALL = ToolCallBlock("t1", "read", {"path": "a.py"})
CONVERSATION: list[Message] = [
    user_message("Read a.py and b.py."),
    AssistantMessage((TextBlock("I look."), CALL, ToolCallBlock("t2", "read", {"path": "b.py"}))),
    UserMessage(
        (
            TextBlock("By the way."),
            ToolResultBlock("t1", "read", "1\tpass"),
            ToolResultBlock("t2", "read", "no such file", error=True),
        )
    ),
    AssistantMessage((TextBlock("One is there."),)),
    user_message("Thanks."),
]
THOUGHT = ThinkingBlock("Which file? 漢", "c2ln")
TEXT = TextBlock("I read two files at once. é")
EMIT = ToolCallBlock("toolu_1", "self_emitvalue", {"path": "a/é.py", "n": [1, None, {"x": True}]})
READ = ToolCallBlock("toolu_2", "read", {})
ANSWER = WireAnswer((THOUGHT, TEXT, EMIT, READ), "model-x", "msg_1", Usage(), StopReason.CALLS)
IMAGE = ImageBlock("image/png", b"\x89PNG" * 3000, 640, 480)


def answer_with(*blocks: ToolCallBlock) -> WireAnswer:
    return WireAnswer(blocks, "m", "r1", Usage(1, 1), StopReason.CALLS)


class WireConformance:
    """The suite of one wire."""

    wire: Wire

    @property
    def stream(self) -> bytes:
        return b"".join(self.wire.write(replace(ANSWER, usage=self.wire.usage)))

    def test_each_body_extends_the_previous_one_and_conversations_share_the_prefix(self) -> None:
        model = self.wire.make_model()
        conversation = model.start_conversation(CONFIG)
        sibling = model.start_conversation(CONFIG)
        assert conversation.build_body() == sibling.build_body()
        start = b'"%b":[' % self.wire.messages.encode()
        before = b""
        for message in CONVERSATION:
            conversation.append(message)
            body = conversation.build_body()
            head, _, messages = body.rpartition(start)
            assert head == sibling.build_body().rpartition(start)[0]
            messages = messages.replace(CACHE_MARK, b"").partition(b'],"tools":')[0]
            messages = messages.removesuffix(b"]}")
            assert messages.startswith(before) and len(messages) > len(before)
            before = messages

    def test_a_forbidden_call_changes_nothing_before_the_messages_end(self) -> None:
        conversation = self.wire.start(*CONVERSATION, config=CONFIG)
        free, forbidden = conversation.build_body(), conversation.build_body(tools=False)
        start = b'"%b":[' % self.wire.messages.encode()
        assert free.partition(start)[0] == forbidden.partition(start)[0]
        first, second = json.loads(free), json.loads(forbidden)
        if self.wire.forbids is None:
            del first["tools"]
        assert second == first | (self.wire.forbids or {})

    def test_without_tools_nothing_is_forbidden_and_no_system_prompt_is_sent(self) -> None:
        bodies = [self.wire.build(user_message("x"), tools=tools) for tools in (True, False)]
        sent = [{key: value for key, value in body.items() if value != []} for body in bodies]
        assert sent[0] == sent[1]
        assert not sent[0].keys() & {"tools", "system", "systemInstruction", "tool_choice"}
        assert "instructions" not in sent[0] and len(sent[0][self.wire.messages]) == 1

    def test_system_prompt_tools_and_messages_are_sent_in_order(self) -> None:
        body = json.dumps(self.wire.build(*CONVERSATION, config=CONFIG))
        words = ["I look.", "a.py", "b.py", "1\\tpass", "no such file", "By the way.", "Thanks."]
        places = [body.rindex(f"{word}") for word in words]
        assert places == sorted(places)
        assert "Be brief." in body and "Does read." in body
        assert "self_emitvalue" in body and "self.emitvalue" not in json.dumps(
            [tool["name"] for tool in self._get_declared(json.loads(body))]
        )

    def _get_declared(self, body: Json) -> list[Json]:
        tools = [tool.get("function", tool) for tool in body["tools"]]
        return [each for tool in tools for each in tool.get("functionDeclarations", [tool])]

    @pytest.mark.parametrize("empty", ["", "\0"])
    def test_empty_text_is_not_sent(self, empty: str) -> None:
        nothing = (TextBlock(empty), TextBlock(""))
        messages = [UserMessage(nothing), AssistantMessage(nothing), UserMessage(())]
        assert self.wire.get_messages(*messages) == []
        thought = AssistantMessage((ThinkingBlock(""), TextBlock(empty), TextBlock("Yes.")))
        assert "Yes." in json.dumps(self.wire.get_messages(thought))

    def test_malformed_arguments_are_sent_as_received(self) -> None:
        calls = AssistantMessage((CALL, ToolCallBlock("t2", "read", {}, malformed='{"path": "a')))
        assert find_arguments(self.wire.get_messages(calls)) == [
            {"path": "a.py"},
            {"INVALID_JSON": '{"path": "a'},
        ]

    def test_lone_surrogates_and_nul_are_not_sent(self) -> None:
        call = ToolCallBlock("t", "read", {"path": "\udfff\0x"})
        result = ToolResultBlock("t", "read", "r\0\ud800")
        body = self.wire.build(
            user_message("a\0b\ud800c😀"),
            AssistantMessage((call,)),
            UserMessage((result,)),
            config=RequestConfig(system="s\ud800"),
        )
        assert find_arguments(body[self.wire.messages]) == [{"path": "\ufffdx"}]
        text = json.dumps(body, ensure_ascii=False)
        assert all(each in text for each in ("ab\ufffdc😀", "s\ufffd", "r\ufffd"))
        assert "\\u0000" not in text

    def test_thinking_goes_only_to_the_server_that_wrote_it(self) -> None:
        blocks = (ThinkingBlock("Hm, hm.", self.wire.seal), TextBlock("Yes."))
        own = self.wire.make_model().wire
        others = {other.make_model().wire for other in WIRES} - {own}
        for wire in (own, self.wire.kind.WIRE, *others):
            message = AssistantMessage(blocks, wire=wire)
            sent = json.dumps(self.wire.get_messages(user_message("x"), message, user_message("y")))
            assert ("Hm, hm." in sent) is (wire == own), wire
            assert "Yes." in sent

    def test_a_model_without_images_gets_placeholders(self) -> None:
        result = ToolResultBlock("t1", "read", "duck.png", images=(IMAGE,))
        prompt = UserMessage((result, TextBlock("What is this?"), IMAGE))
        conversation = [user_message("Look."), AssistantMessage((CALL,)), prompt]
        sent = json.dumps(self.wire.get_messages(*conversation, takes_images=False))
        assert sent.count("[image: image/png, 640x480, 12 KB]") == 2
        assert "iVBOR" not in sent and "duck.png\\n[image" in sent
        assert json.dumps(self.wire.get_messages(*conversation)).count("iVBOR") >= 2

    def test_a_request_may_lower_the_maximum_of_tokens_and_never_raise_it(self) -> None:
        def find_maximum(of_config: int | None, of_request: int | None) -> int:
            config = RequestConfig(system="s", max_tokens=of_config)
            conversation = self.wire.start(user_message("Hello."), config=config)
            body = json.loads(conversation.build_body(max_tokens=of_request))
            fields = body | body.get("generationConfig", {}) | body.get("options", {})
            names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
            return next(fields[name] for name in (*names, "num_predict") if name in fields)

        maximum = find_maximum(None, None)
        assert find_maximum(None, 123) == 123
        assert find_maximum(None, 10**9) == maximum
        assert find_maximum(50, None) == find_maximum(50, 123) == 50
        assert find_maximum(500, 123) == 123

    def test_the_key_is_in_a_header_and_never_in_the_url(self) -> None:
        model = self.wire.make_model(key="secret", headers={"x-more": "1"}, base_url=f"{ADDRESS}/")
        name, value = self.wire.key_header
        assert (model.headers[name], model.headers["x-more"]) == (value, "1")
        assert "secret" not in model.url and "//" not in model.url.removeprefix("http://")
        assert name not in self.wire.make_model().headers

    def test_an_answer_is_read_completely(self) -> None:
        message, chunks = self.wire.read(*self.wire.split(self.stream))
        thinking, text, first, second = message.content
        assert isinstance(thinking, ThinkingBlock) and isinstance(text, TextBlock)
        assert (thinking.text, text.text) == (THOUGHT.text, TEXT.text)
        calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
        assert calls == [("toolu_1", "self.emitvalue", EMIT.arguments), ("toolu_2", "read", {})]
        assert (first, second) == message.tool_calls
        assert message.stop_reason is StopReason.CALLS
        assert (message.model, message.usage) == ("model-x", self.wire.usage)
        assert message.wire == self.wire.make_model().wire
        assert message.id == ("" if self.wire is OLLAMA else "msg_1")
        for kind, block in (("thinking", thinking), ("text", text)):
            assert "".join(chunk.text for chunk in chunks if chunk.kind == kind) == block.text

    def test_a_stream_split_at_any_byte_gives_the_same_message(self) -> None:
        stream = self.stream
        whole = self.wire.read_parts(stream)
        for at in range(len(stream)):
            assert self.wire.read_parts(stream[:at], stream[at:]) == whole, at
        assert self.wire.read_parts(*(stream[at : at + 1] for at in range(len(stream)))) == whole

    def test_a_stream_cut_at_any_byte_gives_no_message_or_the_whole(self) -> None:
        stream = self.stream
        whole = self.wire.read_parts(stream)
        cuts = 0
        for at in range(len(stream)):
            try:
                message = self.wire.read_parts(stream[:at])
            except StreamCut:
                cuts += 1
            else:
                ending = (message.content, message.stop_reason)
                assert ending == (whole.content, whole.stop_reason), at
        assert cuts > stream.index(b"toolu_2")

    def test_unknown_events_and_fields_are_ignored(self) -> None:
        events: list[Json | bytes] = []
        for event in self.wire.split(self.stream):
            if event != b"[DONE]":
                events += [event.rstrip()[:-1] + b',"new":{"deep":[1]}}', {"type": "weather"}]
        assert self.wire.read(*events) == self.wire.read(*self.wire.split(self.stream))

    def test_events_of_another_protocol_are_garbled(self) -> None:
        others = [wire for wire in WIRES if wire is not self.wire]
        for other in others:
            with pytest.raises((ModelGarbled, msgspec.ValidationError)):
                self.wire.read(*other.split(b"".join(other.write(ANSWER))))

    def test_each_call_gets_an_id_of_its_own(self) -> None:
        calls = [ToolCallBlock(call_id, "read", {"path": "a"}) for call_id in ("", "", "x", "x")]
        message = self.wire.read_parts(b"".join(self.wire.write(answer_with(*calls))))
        assert len({call.id for call in message.tool_calls} - {""}) == 4
        assert [call.arguments for call in message.tool_calls] == [{"path": "a"}] * 4

    @pytest.mark.parametrize("raw", ['{"path": ', "[1]", '"text"', "nonsense"])
    def test_arguments_that_are_no_object_are_kept_as_received(self, raw: str) -> None:
        if not self.wire.arguments_are_text:
            pytest.skip("arguments are a part of the event")
        call = ToolCallBlock("t", "read", {}, malformed=raw)
        message = self.wire.read_parts(b"".join(self.wire.write(answer_with(call))))
        assert message.tool_calls == (call,)

    def test_each_stop_reason_has_a_meaning(self) -> None:
        for reason, stop in self.wire.stops.items():
            message, _ = self.wire.read(*self.wire.end_with(reason))
            assert message.stop_reason is stop, reason

    def test_an_error_in_the_stream_has_the_status_of_a_response(self) -> None:
        for event, status in self.wire.errors:
            with pytest.raises(StreamError) as caught:
                self.wire.read(self.wire.split(self.stream)[0], event)
            assert (caught.value.status, caught.value.text) == (status, "slow down"), event


class TestAnthropic(WireConformance):
    wire = ANTHROPIC


class TestOpenAI(WireConformance):
    wire = OPENAI


class TestResponses(WireConformance):
    wire = RESPONSES


class TestGoogle(WireConformance):
    wire = GOOGLE


class TestOllama(WireConformance):
    wire = OLLAMA
