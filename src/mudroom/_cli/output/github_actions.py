"""Annotations and step summary, as GitHub Actions reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from ..._core.listings import count_noun
from ..._core.runs import Report
from ..._projections.ledger import Ledger, describe_ledger
from ..._projections.reason_words import REASON_WORDS
from ..._projections.safe_text import sanitize
from .progress import print_notice
from .report import explain_failure

# Annotations per run. GitHub shows 10 of each level per step.
MAX_REMARKS = 50
# Characters of the answer in the summary, which GitHub limits to 1 MiB.
MAX_ANSWER = 60_000
# Numbers come from a model: larger ones are nonsense, and Python refuses very long digits.
_MAX_LINE = 1_000_000_000
_MAX_DIGITS = 20
_LEVELS = {"error": "error", "warning": "warning", "notice": "notice", "info": "notice"}


def write_annotations(
    report: Report, ledger: Ledger, environ: Mapping[str, str], *, session: str
) -> None:
    for line in make_annotations(report):
        print(line, file=sys.stderr)
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    text = make_summary(report, ledger, session=session)
    try:
        # Other programs in the same step also append to the file.
        with open(path, "ab") as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        print_notice(f"the summary cannot be written: {error.strerror} ({path})")


def make_annotations(report: Report) -> list[str]:
    """Make a command for each remark in the outputs, and one if the run failed.

    A remark is an object with `file` and `message`, and optionally `line` and `severity`.
    """
    remarks = list(_find_remarks(msgspec.to_builtins(report.outputs)))
    lines = [_make_command(remark) for remark in remarks[:MAX_REMARKS]]
    if (more := len(remarks) - MAX_REMARKS) > 0:
        lines.append(f"::notice title=mudroom::{count_noun(more, 'more remark')}, not shown here")
    if failure := explain_failure(report):
        lines.append(f"::error title=mudroom::{_escape(failure)}")
    return lines


def make_summary(report: Report, ledger: Ledger, *, session: str) -> str:
    usage = report.usage
    costs = "unknown" if report.usd is None else f"${report.usd:.4f}"
    figures = [
        count_noun(report.turns, "turn"),
        f"{report.seconds:.0f} s",
        f"{usage.total_tokens:,} tokens",
        f"costs {costs}",
        f"session {session}",
    ]
    ending = REASON_WORDS[report.reason].predicate
    parts = [f"### mudroom: the run {ending} ({report.reason.value})", ", ".join(figures)]
    parts += filter(None, [explain_failure(report), describe_ledger(ledger)])
    answer = sanitize(report.text)
    if report.outputs:
        encoded = msgspec.json.format(msgspec.json.encode(report.outputs), indent=2).decode()
        parts.append(f"```json\n{_cut(encoded)}\n```")
    elif answer:
        parts.append(_cut(answer))
    return "\n\n".join(parts) + "\n\n"


def _find_remarks(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects with a file and a message, at any depth."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if all(isinstance(fields.get(name), str) for name in ("file", "message")):
            yield fields
            return
        value = list(fields.values())
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _find_remarks(each)


def _make_command(remark: Mapping[str, Any]) -> str:
    level = _LEVELS.get(str(remark.get("severity", "")).lower(), "warning")
    place = ""
    if remark["file"].strip():
        place = f" file={_escape_property(remark['file'])}"
        if line := _parse_line(remark.get("line")):
            place += f",line={line}"
    return f"::{level}{place}::{_escape(remark['message'])}"


def _parse_line(value: object) -> int:
    """Parse a line number that a model wrote as an integer or as digits, else 0."""
    if isinstance(value, str):
        is_number = value.strip().isdecimal() and len(value) < _MAX_DIGITS
        value = int(value) if is_number else 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 < value <= _MAX_LINE else 0


def _escape(text: str) -> str:
    """Escape text so that it is one line and begins no command."""
    text = sanitize(text)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _cut(text: str) -> str:
    if len(text) <= MAX_ANSWER:
        return text
    return f"{text[:MAX_ANSWER]}\n… ({len(text):,} characters in all)"
