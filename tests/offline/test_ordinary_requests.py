"""What people ask of a project in ordinary words, answered on three small projects.

An answer must show a fact that is true of the project, or change what was asked for and nothing
else. A refusal is no mistake, but at most a quarter of the first two hundred may be refused, and of
the two lists that the rules were changed for. Of the hold-out lists, which no rule was changed for,
about a third is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.long_form import count_examples
from tests.offline.ordinary.checks import Outcome, run_requests
from tests.offline.ordinary.projects import PROJECTS

from mudroom_offline.requests import parse_prompt

STEP = count_examples(2, 1)
"""Each STEP-th request of the lists after the first one is tried."""
BEYOND = Path(__file__).with_name("ordinary") / "beyond.txt"


def list_wrong(outcomes: list[Outcome]) -> list[tuple[str, str, str]]:
    """Return key, prompt and answer of each wrong answer."""
    return [(x.key, x.prompt, x.text) for x in outcomes if x.result == "wrong"]


@pytest.mark.parametrize("number", range(3))
async def test_no_answer_is_wrong_and_at_most_a_quarter_is_refused(
    number: int, tmp_path: Path
) -> None:
    project = list(PROJECTS.values())[number]
    outcomes = await run_requests("requests.toml", project, tmp_path, slice(number, None, 3))
    assert len(outcomes) >= 66
    assert list_wrong(outcomes) == []
    refused = [x.prompt for x in outcomes if x.result == "refused"]
    assert len(refused) * 4 <= len(outcomes), refused


@pytest.mark.parametrize("number", range(3))
async def test_no_answer_is_wrong_in_other_words(number: int, tmp_path: Path) -> None:
    project = list(PROJECTS.values())[number]
    outcomes = await run_requests("more.toml", project, tmp_path, slice(number, None, 3 * STEP))
    assert outcomes and list_wrong(outcomes) == []


@pytest.mark.parametrize(
    ("file", "most_refused"),
    [("develop", 0.25), ("develop_two", 0.25), ("hold_out", 0.4), ("second_hold_out", 0.4)],
)
async def test_later_requests_are_seldom_refused_and_never_answered_wrong(
    file: str, most_refused: float, tmp_path: Path
) -> None:
    outcomes: list[Outcome] = []
    for number, project in enumerate(PROJECTS.values()):
        part = slice(number, None, 3 * STEP)
        outcomes += await run_requests(f"{file}.toml", project, tmp_path / str(number), part)
    assert list_wrong(outcomes) == []
    refused = [x.prompt for x in outcomes if x.result == "refused"]
    assert len(refused) <= len(outcomes) * most_refused, refused


@pytest.mark.parametrize(
    ("short", "usual"),
    [
        ("wich lisence is it", "licence"),
        ("lsit the depedencies plz", "stack"),
        ("tl;dr of this repo", "description"),
        ("I mean the licence", "licence"),
    ],
)
def test_words_typed_in_a_hurry_are_read(short: str, usual: str) -> None:
    requests, left = parse_prompt(short)
    assert ([x.kind for x in requests], left) == ([usual], [])


@pytest.mark.parametrize("name", ["ty", "Teh", "fuction", "readm", "hwo"])
@pytest.mark.parametrize(
    "prompt",
    ["where is {} defined?", "where is the function {} defined?", "where is the class {} used?"],
)
def test_a_name_is_not_spelled_otherwise(prompt: str, name: str) -> None:
    ((request,), left) = parse_prompt(prompt.format(name))
    assert name in request.text and not left


@pytest.mark.parametrize(
    "prompt",
    [
        "tests - how do I run them",
        "run the tests, what is the command",
        "test 怎么跑",
        "我要怎样把测试跑起来",
    ],
)
def test_a_topic_is_known_by_its_concepts_in_any_order(prompt: str) -> None:
    requests, left = parse_prompt(prompt)
    assert ([x.kind for x in requests], left) == (["run_tests"], [])


@pytest.mark.parametrize("prompt", BEYOND.read_text("utf-8").splitlines())
def test_a_request_that_only_resembles_one_is_not_answered_whole(prompt: str) -> None:
    requests, left = parse_prompt(prompt)
    assert left or not requests, requests
