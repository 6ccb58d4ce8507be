"""Cutting work for children, and making one answer of what they report."""

from __future__ import annotations

import re
from collections.abc import Generator
from itertools import pairwise

from msgspec import Struct

from .plan import Ask, Means, Outcome, call
from .reading import read_all

_SMALL, _CHILDREN, _LARGE = 5, 16, 40
_HEAD = re.compile(r"^\[(?P<reason>[A-Z_]+)[:\s]?(?P<why>[^\n]*)\]\s*$")
_EVIDENCE = re.compile(r"^\[evidence\b.*\]$")
_SPILLED = re.compile(r"^\[… cut: the whole report, .* is in (\S+)\]$")


class Piece(Struct, frozen=True):
    """Work for one child: the whole prompt, and three to five words for the screen."""

    prompt: str
    title: str


class Heard(Struct, frozen=True):
    """What a child said, without the engine's lines around it; `caveat` when it did not finish."""

    text: str
    caveat: str = ""


def batches(files: list[str]) -> list[list[str]]:
    """Files in batches of about the same size, in order: five to a child, more when there are very many."""
    size = min(_LARGE, max(_SMALL, -(-len(files) // _CHILDREN)))
    count = -(-len(files) // size)
    bounds = [round(n * len(files) / count) for n in range(count + 1)] if count else []
    return [files[a:b] for a, b in pairwise(bounds)]


def folder_of(files: list[str]) -> str:
    """The folder that all of them are in, "" for the top."""
    parts = [path.split("/")[:-1] for path in files]
    shared: list[str] = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared)


def send(
    pieces: list[Piece], means: Means, *, writes: bool = False
) -> Generator[list[Ask], list[Outcome], list[Heard]]:
    """Start a child for each piece, all in one answer, and hear what they report."""
    agent = means.reader if means.reader and not writes else None
    outcomes = yield [
        call("task", prompt=piece.prompt, description=piece.title, agent=agent) for piece in pieces
    ]
    spills = [
        m[1]
        for outcome in outcomes
        for line in outcome.text.split("\n")
        if (m := _SPILLED.match(line))
    ]
    whole = (yield from read_all(spills)) if spills and "read" in means.tools else {}
    heard: list[Heard] = []
    for piece, outcome in zip(pieces, outcomes, strict=True):
        heard.append(_heard(piece, outcome, {path: file.text for path, file in whole.items()}))
    return heard


def caveats(heard: list[Heard]) -> list[str]:
    """One line for each child that did not finish."""
    return [f"⚠ {h.caveat}" for h in heard if h.caveat]


def _heard(piece: Piece, outcome: Outcome, whole: dict[str, str]) -> Heard:
    lines = outcome.text.strip().split("\n")
    head = _HEAD.match(lines[0])
    if head or outcome.error:
        caveat = f"{piece.title}: {lines[0].strip('[]')}"
        return Heard(_stripped(lines[1:] if head else [], whole), caveat)
    return Heard(_stripped(lines, whole))


def _stripped(lines: list[str], whole: dict[str, str]) -> str:
    kept: list[str] = []
    for line in lines:
        if (m := _SPILLED.match(line)) and whole.get(m[1]):
            return whole[m[1]].strip()
        if not _EVIDENCE.match(line) and not _SPILLED.match(line):
            kept.append(line)
    text = "\n".join(kept).strip()
    return "" if text == "(no summary)" else text
