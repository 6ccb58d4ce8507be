"""The end of a one-shot run: its exit code, and one line about a failure."""

from typing import Any

import pytest

from mudroom._cli.output.report import explain_failure
from mudroom._cli.output.run_reporter import ExitCodeRule
from mudroom._core.budgets import Limit, LimitState
from mudroom._core.events import TurnFailed, WorkMerged
from mudroom._core.runs import Reason, Report


def make_report(reason: Reason, *, text: str = "so far", **fields: Any) -> Report:
    outputs = dict[str, Any]()
    return Report(outputs=outputs, text=text, run_id="1", reason=reason, turns=3, **fields)


@pytest.mark.parametrize("reason", Reason)
def test_only_the_reason_goal_exits_with_0(reason: Reason) -> None:
    assert ExitCodeRule().exit_code(make_report(reason), []) == (0 if reason is Reason.GOAL else 1)


def test_a_signal_decides_the_exit_code() -> None:
    assert ExitCodeRule().exit_code(make_report(Reason.CANCELLED), [2]) == 130
    assert ExitCodeRule().exit_code(make_report(Reason.GOAL), [15, 2]) == 143


def test_75_is_for_transient_failures_of_the_root_run() -> None:
    rule = ExitCodeRule()
    rule.apply(TurnFailed(at=0.0, run="1.1.1", error="overloaded", transient=True))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 1, (
        "the parent handles failures of a child"
    )
    rule.apply(TurnFailed(at=0.0, run="1", error="overloaded", transient=True))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 75
    assert rule.exit_code(make_report(Reason.GOAL), []) == 0
    rule.apply(TurnFailed(at=0.0, run="1", error="bad key"))
    assert rule.exit_code(make_report(Reason.ERROR), []) == 1


def test_failure_is_explained_in_one_line() -> None:
    assert explain_failure(make_report(Reason.GOAL)) == ""
    assert (
        explain_failure(make_report(Reason.ERROR, error="the provider said \x1b[31mno"))
        == "the provider said no"
    )
    assert (
        explain_failure(make_report(Reason.MAX_TURNS))
        == "the run reached its turn limit after 3 turns; its partial result is the answer"
    )
    assert explain_failure(make_report(Reason.LOOP, text="")).endswith("it gave no answer")


@pytest.mark.parametrize(
    ("reason", "state", "text"),
    [
        (
            Reason.MAX_TURNS,
            LimitState(Limit.TURNS, 2, 2),
            "reached its turn limit after 2 turns; its",
        ),
        (
            Reason.BUDGET,
            LimitState(Limit.TOTAL_TOKENS, 3000, 4501),
            "budget limit after 3 turns, 4,501 of 3,000 total tokens; its",
        ),
        (
            Reason.BUDGET,
            LimitState(Limit.USD, 0.005, 0.00706),
            "budget limit after 3 turns, $0.00706 of $0.005; its",
        ),
        (Reason.TIMEOUT, LimitState(Limit.SECONDS, 60, 60.25), "60.25 of 60 seconds; its"),
    ],
)
def test_the_failure_line_names_the_limit(reason: Reason, state: LimitState, text: str) -> None:
    assert text in explain_failure(make_report(reason, limit=state))


def test_work_that_did_not_land_has_an_exit_code_on_request() -> None:
    landed = WorkMerged(at=1, run="1", child="1.1.1", state="merged", files=("a",))
    conflict = WorkMerged(at=2, run="1.1.1", child="1.1.1.1.1", state="conflict")
    strict, plain = ExitCodeRule(strict_merges=True), ExitCodeRule()
    strict.apply(landed)
    assert strict.exit_code(make_report(Reason.GOAL), []) == 0
    for rule in (strict, plain):
        rule.apply_past(conflict)
    assert strict.exit_code(make_report(Reason.GOAL), []) == 3
    assert strict.exit_code(make_report(Reason.BUDGET), []) == 1
    assert plain.exit_code(make_report(Reason.GOAL), []) == 0
