"""Loop detection: warns a run that repeats itself with the same results, then ends it with LOOP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._core.messages import AssistantMessage
from .._platform.patterns import compile_later
from .conversation import CallOutcome

WARN_AFTER = 4  # repeats of a pattern of turns from one warning to the next
STOP_AFTER = 12  # repeats before the run ends with LOOP

WARNING = (
    "You are going in circles: you did the same {count} times in a row and got the same each time. "
    "Do something else, or stop and report what you have."
)

REFUSED_WARNING = (
    "None of the calls of your last {count} answers was allowed or possible. "
    "Do something else, or stop and report what you have."
)

LONGEST_PERIOD = 5  # turns in a pattern that repeats

_WORK_ID = compile_later(r"(?<!\d)\d++(?:[.-]\d++)+")
"""The id of a run or command, possibly with a hyphen, as in file names."""

_EVIDENCE_START = "[evidence: "
_SPILL_DIGITS = compile_later(r"-[0-9a-f]{16}(?=\.txt)")  # each spill file has others

_EVIDENCE = compile_later(r"^\[evidence: .*\]$", re.MULTILINE)
"""The line of a report with times and ids, which always differ."""


class LoopDetector:
    """History of a run's last turns.

    Two turns are equal if they have equal notifications, tool calls and results, and as much open
    background work. So polling with changing results is no loop, and neither is waiting for many
    children. Ids of children and commands are ignored. A pattern is one turn, or a sequence of up
    to LONGEST_PERIOD different ones.

    Consecutive turns without any call that could act are a loop as well, whatever their arguments:
    the calls were denied, had wrong arguments, or named no tool.
    """

    def __init__(self) -> None:
        self._turns: list[int] = []  # hashes of the last turns
        self._equal_counts: dict[int, int] = {}
        """Period -> how many consecutive turns equal the turn one period before, if any."""
        self._work_ids: dict[str, None] = {}
        self._open_count = 0
        self._notifications: list[int] = []
        self._refused_turns = 0

    def make_warning(self, repeats: int) -> str:
        is_refused = self._refused_turns >= repeats
        return (REFUSED_WARNING if is_refused else WARNING).format(count=repeats)

    def add_notification(self, text: str) -> None:
        self._open_count -= 1
        self._notifications.append(hash(self._remove_differences(text)))

    def add_turn(self, message: AssistantMessage, outcomes: Sequence[CallOutcome]) -> int:
        """Add a turn; return how many times in a row the pattern ending with it has occurred.

        1 means that the turn is new, or in the middle of a pattern.
        """
        self._refused_turns += 1
        if not outcomes or not outcomes[0].refused or not all(each.refused for each in outcomes):
            self._refused_turns = 0
        calls = {call.id: call for call in message.tool_calls} if outcomes else {}
        results: list[object] = []
        for outcome in outcomes:
            self._add_work(outcome.result.detail)
            call = calls[outcome.call_id]
            arguments = self._remove_differences(repr(sorted(call.arguments.items())))
            text = self._remove_differences(outcome.result.text)
            results.append((call.name, hash(arguments), hash(text)))
        results = results or [self._remove_differences(message.text.strip())]
        turn = hash((self._open_count, tuple(self._notifications), tuple(results)))
        self._notifications = []
        earlier_turns = self._turns
        earlier_counts = self._equal_counts
        self._turns = [*earlier_turns[1 - LONGEST_PERIOD :], turn]
        self._equal_counts = {}
        repeats = self._refused_turns or 1
        if turn not in earlier_turns:
            return repeats
        for period, earlier_turn in enumerate(reversed(earlier_turns), 1):
            if turn == earlier_turn:
                count = earlier_counts.get(period, 0) + 1
                self._equal_counts[period] = count
                if count % period == 0:
                    repeats = max(repeats, count // period + 1)
        return repeats

    def _add_work(self, detail: Mapping[str, Any]) -> None:
        """Remember the child or background command that a call started."""
        is_background = bool(detail.get("background"))
        self._open_count += is_background
        if work_id := detail.get("run") or (is_background and detail.get("command")):
            self._work_ids[work_id] = None

    def _remove_differences(self, text: str) -> str:
        """Remove work ids and evidence, and repeats of lines that had an id."""
        if not self._work_ids:
            return text

        def replace_id(match: re.Match[str]) -> str:
            return "#" if match[0].replace("-", ".") in self._work_ids else match[0]

        same = _EVIDENCE.sub("", text) if _EVIDENCE_START in text else text
        same = _SPILL_DIGITS.sub("", same)
        same = _WORK_ID.sub(replace_id, same)
        return text if same == text else "\n".join(dict.fromkeys(same.split("\n")))
