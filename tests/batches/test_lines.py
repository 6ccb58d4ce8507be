"""Lines of a batch, and the check of a whole input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom import Budget, UsageError
from mudroom._cli.batches.input_file import BatchLine, InputFile, LineError, parse_line


def parse(value: object, number: int = 7) -> BatchLine:
    return parse_line(number, json.dumps(value).encode() + b"\n")


def test_a_native_line_has_all_fields() -> None:
    line = parse(
        {
            "custom_id": "a",
            "prompt": "Count.",
            "agent": "explore",
            "model": "offline",
            "budget": {"turns": 3, "usd": 0.5},
            "outputs": {"count": "how many"},
        }
    )
    assert (line.id, line.prompt, line.agent, line.model) == ("a", "Count.", "explore", "offline")
    assert line.make_budget() == Budget(turns=3, usd=0.5)
    assert line.outputs == {"count": "how many"}
    for value in ("Count.", {"prompt": "Count."}):
        assert parse(value) == BatchLine(7, "line-7", "Count.")


def make_openai(**body: Any) -> dict[str, Any]:
    return {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": body}


def test_a_line_of_openai_has_messages_model_and_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    line = parse(
        make_openai(
            model="offline",
            messages=[
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": [{"type": "text", "text": "Count."}]},
            ],
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
            temperature=0,
            max_tokens=9,
        )
    )
    assert (line.id, line.prompt, line.model) == ("c", "Be short.\n\nCount.", "offline")
    assert line.outputs == schema
    assert line.ignored == ("max_tokens", "temperature")
    responses = make_openai(model="offline", input="Count.") | {"url": "/v1/responses"}
    assert parse(responses).prompt == "Count."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "neither an object nor a text"),
        ({"id": "a"}, "it has no prompt"),
        ({"prompt": " "}, "the prompt is empty"),
        ({"prompt": 3}, "the prompt is not a text but a int"),
        ({"prompt": "a", "idd": "b"}, "unknown key 'idd'; known are custom_id, prompt"),
        ({"prompt": "a", "cwd": "/"}, "a batch works in one folder, which -C names"),
        ({"prompt": "a", "id": ""}, "the id is '', not a text of one line"),
        ({"prompt": "a", "id": 3}, "the id is 3"),
        ({"prompt": "a", "custom_id": 3}, "the id is 3"),
        ({"prompt": "a", "custom_id": "b", "id": "b"}, "mean the same; use custom_id"),
        ({"prompt": "a", "agent": 3}, "agent is 3, not a text"),
        ({"prompt": "a", "budget": 3}, "budget is 3, not an object"),
        ({"prompt": "a", "budget": {"turn": 3}}, "unknown limit 'turn'; use turns"),
        ({"prompt": "a", "budget": {"turns": -1}}, "turns must be a whole number"),
        ({"prompt": "a", "outputs": []}, "outputs is [], not an object"),
        (make_openai(), "body has no messages"),
        (make_openai(messages=[{"role": "assistant", "content": "a"}]), "a line is one task"),
        (make_openai(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "no text"),
        (make_openai(input="a", response_format={"type": "json_object"}), "use json_schema"),
        (make_openai(input="a") | {"url": "/v1/embeddings"}, "url is '/v1/embeddings'"),
        ({"custom_id": "a"}, "body is no object"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(value: object, text: str) -> None:
    with pytest.raises(LineError) as error:
        parse(value)
    assert text in str(error.value)


def test_the_key_changes_with_the_text_and_not_with_the_place_or_the_order_of_fields() -> None:
    line = parse({"id": "a", "prompt": "b"})
    assert parse({"prompt": "b", "id": "a"}, number=8).compute_key() == line.compute_key()
    assert parse({"custom_id": "a", "prompt": "b"}).compute_key() == line.compute_key()
    budget = {"prompt": "b", "budget": {"turns": 2}}
    assert parse({"custom_id": "a", **budget}) == parse({"id": "a", **budget})
    assert parse({"id": "a", "prompt": "c"}).compute_key() != line.compute_key()
    assert parse({"id": "a", "prompt": "b", "agent": "c"}).compute_key() != line.compute_key()


def write(folder: Path, *lines: str) -> InputFile:
    path = folder / "in.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return InputFile(path)


def test_all_wrong_lines_are_named_with_their_numbers(tmp_path: Path) -> None:
    source = write(tmp_path, '"good"', "", "{bad", '"good"', "[]")
    with pytest.raises(UsageError, match=r"has wrong lines:\n  line 3: no JSON.*\n  line 5: neit"):
        source.check(with_keys=False)
    with pytest.raises(UsageError, match="the batch is empty"):
        write(tmp_path, "", " ").check(with_keys=False)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"prompt": "b"} {"prompt": "c"}', "no JSON: .*trailing characters"),
        (b'{"prompt": "\xff"}', "no UTF-8 text; save the file as UTF-8"),
        (b'"\xff"', "no UTF-8 text"),
        (b'{"prompt": "a", "b": ' + b"[" * 10_000, ".* nested too deeply"),
    ],
)
def test_a_line_that_is_not_one_value_is_named_with_its_number(
    tmp_path: Path, line: bytes, error: str
) -> None:
    path = tmp_path / "in.jsonl"
    for before in (b'{"prompt": "a"}\n', b'"a"\n'):
        path.write_bytes(before + line + b'\n{"prompt": "d"}\n')
        with pytest.raises(UsageError, match=f"line 2: {error}"):
            InputFile(path).check(with_keys=False)


def test_an_input_that_changes_after_its_check_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path, '"a"', '"b"')
    assert source.check(with_keys=False).total == 2
    write(tmp_path, '"a"', "[]")
    with pytest.raises(UsageError, match="line 2: neither an object nor a text"):
        list(source.read())


@pytest.mark.parametrize("line", ['{"prompt": "hi"}', '"hi"', '{"prompt": "hi", "budget": {}}'])
def test_a_byte_order_mark_changes_nothing(tmp_path: Path, line: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\n")
    source = InputFile(path)
    source.check(with_keys=False)
    [marked] = source.read()
    [plain] = write(tmp_path, line).read()
    assert marked == plain
    assert marked.prompt == "hi"


def test_a_budget_with_which_no_run_can_work_is_an_error(tmp_path: Path) -> None:
    for name in ("turns", "seconds", "total_tokens", "usd"):
        source = write(tmp_path, f'{{"prompt": "a", "budget": {{"{name}": 0}}}}')
        with pytest.raises(UsageError, match=f"line 1: the budget has {name} 0"):
            source.check(with_keys=False)
    source = write(tmp_path, '{"prompt": "a", "budget": {"children": 0, "depth": 0}}')
    assert source.check(with_keys=False).total == 1


def test_a_large_input_has_the_numbers_of_its_lines(tmp_path: Path) -> None:
    lines = [f'{{"prompt": "{"x" * 90} {number}"}}' for number in range(1, 8_001)]
    lines[99] = '{"prompt": "a", "agent": "first"}'
    lines[5_999] = '{"prompt": "a", "agent": "second", "budget": {"turns": 2}}'
    lines[6_999] = '{"prompt": "a", "agent": "second", "model": "third"}'
    source = write(tmp_path, *lines)
    facts = source.check(with_keys=True)
    assert facts.total == 8_000
    assert (facts.agents, facts.models) == ({"first": 100, "second": 6_000}, {"third": 7_000})
    read = list(source.read())
    assert [line.number for line in read] == list(range(1, 8_001))
    assert all(line.compute_key() in facts.keys for line in read)
    source = write(tmp_path, *lines[:7_990], '{"prompt": ""}', '{"prompt": "a", "id": "line-9"}')
    with pytest.raises(UsageError, match="line 7991: the prompt is empty"):
        source.check(with_keys=False)
    source = write(tmp_path, *lines[:7_990], '{"prompt": "a", "id": "line-9"}')
    with pytest.raises(UsageError, match="line 7991: line 9 has the id 'line-9'"):
        source.check(with_keys=False)
