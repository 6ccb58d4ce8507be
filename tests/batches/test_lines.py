"""Lines of a batch, and the check of a whole input."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mudroom import Budget, UsageError
from mudroom._batches.input_file import IdCheck, InputFile
from mudroom._batches.line_formats import BatchLine, LineError, parse_line
from mudroom._batches.number_set import NumberSet
from mudroom._batches.quick_lines import parse_quickly


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


@pytest.mark.parametrize("value", ["Count.", {"prompt": "Count."}])
def test_a_line_without_an_id_has_its_number(value: object) -> None:
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


def test_a_line_for_the_responses_api_is_read() -> None:
    value = make_openai(model="offline", input="Count.") | {"url": "/v1/responses"}
    assert parse(value).prompt == "Count."


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


def test_an_id_that_stands_twice_is_named(tmp_path: Path) -> None:
    source = write(tmp_path, '{"id": "a", "prompt": "b"}', '"c"', '{"id": "a", "prompt": "d"}')
    with pytest.raises(UsageError, match="line 3: line 1 has the id 'a'"):
        source.check(with_keys=False)


def test_an_input_that_changes_after_its_check_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path, '"a"', '"b"')
    assert source.check(with_keys=False).total == 2
    write(tmp_path, '"a"', "[]")
    with pytest.raises(UsageError, match="line 2: neither an object nor a text"):
        list(source.read())


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "hi"}\n')
    with pytest.raises(UsageError, match="line 1: it begins with a byte order mark; save"):
        InputFile(path).check(with_keys=False)


def test_an_empty_input_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the batch is empty"):
        write(tmp_path, "", " ").check(with_keys=False)


QUICK = [
    '{"custom_id": "a", "prompt": "b"}',
    '{"prompt": "c"}',
    '{"prompt": "d e", "custom_id": "\\u00e9"}',
]
NAMED = ['{"id": "a", "prompt": "b", "agent": "explore"}', '{"prompt": "c", "model": "offline"}']


@pytest.mark.parametrize("lines", [QUICK, NAMED, QUICK * 9])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_many_lines_are_parsed_as_each_of_them(lines: list[str], end: str) -> None:
    text = "".join(f"{line}{end}" for line in lines).encode()
    quick = parse_quickly(5, len(lines), text)
    assert quick is not None
    alone = [parse_line(number, line.encode()) for number, line in enumerate(lines, 5)]
    assert quick.ids == [line.id for line in alone]
    assert quick.prompts == [line.prompt for line in alone]
    assert (quick.agents or [""] * len(lines)) == [line.agent for line in alone]
    assert (quick.models or [""] * len(lines)) == [line.model for line in alone]
    assert list(quick.compute_keys()) == [line.compute_key() for line in alone]


@pytest.mark.parametrize(
    "other",
    [
        '{"prompt": "a"}{"prompt": "b"}\n\n',
        '{"prompt": "a"} {"prompt": "b"}\n\n',
        '{"prompt": "a"} {"prompt": "b"}\n',
        '{"prompt": "a"} {"prompt": "b", "agent": "x"}\n',
        '{"prompt": "\udcff"}\n',
        '{"prompt":\n"a"}\n{"prompt": "b"}{"prompt": "c"}\n',
        '\n{"prompt": "a"}\n',
        '{"prompt": "a"} \n',
        '"a"\n',
        '{"prompt": ""}\n',
        '{"prompt": "\\n\\t"}\n',
        '{"prompt": "a", "id": ""}\n',
        '{"prompt": "a", "custom_id": "\\n"}\n',
        '{"prompt": "a", "custom_id": "b", "id": "b"}\n',
        '{"prompt": "a", "outputs": {"b": "c"}}\n',
        '{"prompt": "a", "idd": "b"}\n',
        '{"prompt": "a", "agent": null}\n',
        '{"prompt": "' + "[" * 100_000 + "\n",
    ],
)
def test_lines_that_are_not_like_most_are_parsed_alone(other: str) -> None:
    quick = '{"prompt": "a"}\n'
    for text in (other, quick + other, other + quick, quick + other + quick):
        data = text.encode("utf-8", "surrogateescape")
        assert parse_quickly(1, text.count("\n"), data) is None


def test_a_large_input_has_the_numbers_of_its_lines(tmp_path: Path) -> None:
    """It is read in several chunks, of which some have lines that are parsed alone."""
    lines = [f'{{"prompt": "{"x" * 90} {number}"}}' for number in range(1, 8_001)]
    lines[99] = '{"prompt": "a", "agent": "first"}'
    lines[5_999] = '{"prompt": "a", "agent": "second", "budget": {"turns": 2}}'
    lines[6_999] = '{"prompt": "a", "agent": "second", "model": "third"}'
    source = write(tmp_path, *lines)
    assert source.path.stat().st_size > 800_000
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


def find_repeated(*parts: list[str]) -> set[int]:
    """Return the hashes of ids that stand twice, as the check of an input finds them."""
    ids = IdCheck()
    for place, part in enumerate(parts):
        if not ids.add(part):
            for earlier in parts[:place]:
                ids.add_earlier(earlier)
    return ids.find_repeated()


@pytest.mark.parametrize("size", [1, 7, 100])
def test_ids_that_stand_twice_are_found_in_any_order(size: int) -> None:
    chance = random.Random(size)
    ascending = [f"id-{number}" for number in range(200)]
    mixed = chance.sample(ascending, len(ascending))
    for ids in (ascending, ascending[::-1], mixed, [*ascending, "a"]):
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        assert find_repeated(*parts) == set()
        for place in range(0, len(ids), 37):
            for other in (0, place // 2, len(ids) - 1):
                repeated = ids.copy()
                repeated.insert(other, ids[place])
                parts = [repeated[start : start + size] for start in range(0, len(repeated), size)]
                assert find_repeated(*parts) == {hash(ids[place])}


def test_a_number_set_finds_numbers_that_were_added_twice() -> None:
    numbers = NumberSet("q")
    numbers.add_all([*range(-900, 900, 3), 2**63 - 1, -(2**63)])
    assert numbers.find_repeated() == set()
    assert -3 in numbers
    assert -2 not in numbers
    numbers.add_all([-3, 2**63 - 1])
    assert numbers.find_repeated() == {-3, 2**63 - 1}


def test_a_number_set_has_the_numbers_that_were_added() -> None:
    numbers = NumberSet()
    for number in (*range(0, 3_000, 3), 2**64 - 1, 6):
        numbers.add(number)
    assert numbers.find_repeated() == {6}
    assert [number for number in range(3_010) if number in numbers] == list(range(0, 3_000, 3))
    assert 2**64 - 1 in numbers
    others = NumberSet()
    others.add_all([3, 2**64 - 1, 2_997])
    assert numbers.includes(others)
    assert sorted(others.list_numbers()) == [3, 2_997, 2**64 - 1]
    others.add(4)
    assert not numbers.includes(others)
