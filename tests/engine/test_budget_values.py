"""Values of limits: a wrong one is refused where it is set, with what, where and remedy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from mudroom import Budget, Children, Session, SessionOptions, UsageError
from mudroom._adapters.agent_files import load_agent_file
from mudroom._cli.main import run
from mudroom._session.agent_catalog import KNOWN_TOOLS
from mudroom._session.config import load_settings
from mudroom.scope import RunConfig

COUNTS = ("turns", "input_tokens", "output_tokens", "total_tokens", "children", "depth")
WRONG_AMOUNTS: tuple[Any, ...] = (-1, -0.5, math.nan, math.inf, -math.inf, True, False, "3", [])


@pytest.mark.parametrize("value", WRONG_AMOUNTS)
@pytest.mark.parametrize("field", Budget.__struct_fields__)
def test_a_budget_refuses_a_wrong_amount(field: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Budget(**{field: value})
    assert field in caught.value.message and repr(value) in caught.value.message
    assert caught.value.where == "Budget" and "None" in caught.value.remedy


@pytest.mark.parametrize("field", COUNTS)
def test_a_count_is_a_whole_number(field: str) -> None:
    with pytest.raises(UsageError, match="whole number"):
        Budget(**dict[str, Any]({field: 2.5}))


def test_zero_and_whole_seconds_are_amounts() -> None:
    budget = Budget(turns=0, seconds=0, usd=0, children=0, depth=0, total_tokens=0)
    assert budget.seconds == 0


@pytest.mark.parametrize("value", WRONG_AMOUNTS)
@pytest.mark.parametrize("field", RunConfig.__struct_fields__)
def test_a_scope_refuses_a_wrong_amount(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=field) as caught:
        RunConfig(**{field: value})
    assert caught.value.where == "RunConfig"


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "x"])
@pytest.mark.parametrize("flag", ["--max-minutes", "--max-budget-usd", "--max-tokens"])
def test_the_command_line_refuses_a_wrong_amount(
    flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-C", str(tmp_path), "--model", "offline", "-p", "hello", f"{flag}={value}"]) == 2
    out, err = capsys.readouterr()
    assert flag in err and "Traceback" not in err and not out


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_variable_refuses_a_wrong_amount(value: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "MUDROOM_MAX_MINUTES": value}
    with pytest.raises(UsageError, match="MUDROOM_MAX_MINUTES"):
        load_settings(cwd=str(tmp_path), environ=environ, flags={})


@pytest.mark.parametrize("key", ["turns", "seconds", "usd", "total_tokens", "minutes"])
@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "true", "many"])
def test_an_agent_file_refuses_a_wrong_amount(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"---\nname: a\ndescription: d\nbudget:\n  {key}: {value}\n---\nWork.\n")
    agent, draft = load_agent_file(str(path), tools=KNOWN_TOOLS)
    (problem,) = draft.diagnostics.items
    assert agent is None and key in problem.text
    assert str(path) in str(problem) and problem.line == 4


@pytest.mark.parametrize("option", ["parallel", "turns"])
@pytest.mark.parametrize("value", [0, -1, True, math.nan])
def test_a_session_refuses_a_wrong_number(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"{option} must be .* \(Children\)"):
        Session(children=Children(**{option: value}))


@pytest.mark.parametrize("value", [-1, True, math.nan])
async def test_map_refuses_a_wrong_number_of_parallel_tasks(value: Any, tmp_path: Path) -> None:
    options = SessionOptions(model="offline", cwd=str(tmp_path), journal="memory", environ={})
    async with Session(**asdict(options)) as session:
        with pytest.raises(UsageError, match="parallel"):
            await session.map(["a"], parallel=value)


def test_a_budget_stores_only_its_limits_and_does_not_change() -> None:
    assert msgspec.json.encode(Budget()) == b"{}"
    assert msgspec.json.encode(Budget(turns=3, usd=0.5)) == b'{"turns":3,"usd":0.5}'
    budget = Budget(turns=3)
    with pytest.raises(AttributeError):
        budget.turns = 4  # type: ignore[misc]
    assert hash(budget) == hash(Budget(turns=3))
