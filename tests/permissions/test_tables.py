"""Every entry of the tables that forbid, removed in turn, lets something through; so does every doubt of the reader of commands."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from mudroom.permissions import program_table, shell_parser
from mudroom.permissions.shell_parser import parse_command
from mudroom.permissions.shell_words import Word


def source(module: types.ModuleType) -> str:
    assert module.__file__
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


PROGRAMS, SHELL = source(program_table), source(shell_parser)


def made(text: str) -> Any:
    """A module of the permissions with another text."""
    module = types.ModuleType("mutated")
    module.__package__ = "mudroom.permissions"
    exec(compile(text, "mutated", "exec"), module.__dict__)
    return module


def words(command: str) -> tuple[Word, ...]:
    return parse_command(command).commands[0].words


def segment(table: str) -> str:
    """The text of a table's assignment."""
    for node in ast.parse(PROGRAMS).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == table:
            return ast.get_source_segment(PROGRAMS, node) or ""
    raise AssertionError(table)


def entries(table: str) -> list[str]:
    """The words in the texts of a table."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(segment(table)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [word for text in texts for word in text.split()]


def without(table: str, word: str) -> Any:
    whole = segment(table)
    part = re.sub(rf"(?<=[\s\"]){re.escape(word)}(?=[\s\"])", "", whole, count=1)
    assert part != whole
    return made(PROGRAMS.replace(whole, part))


def risky(module: Any, command: str) -> bool:
    return bool(module.risk(words(command)))


def runs_rm(module: Any, command: str) -> bool:
    return any(module.program(found) == "rm" for found in module.meanings(words(command)))


def tells_rm(module: Any, command: str) -> bool:
    return "rm x" in module.texts(parse_command(command).commands[0])


def pushes(module: Any, command: str) -> bool:
    return any(
        [word.value for word in found] == ["git", "push"]
        for found in module.meanings(words(command))
    )


NAMES: dict[str, tuple[str, Callable[[Any, str], bool]]] = {
    "SHELLS": ("{} -c 'rm x'", risky),
    "INTERPRETERS": ("{} -c x", risky),
    "NEVER": ("{}", risky),
    "PREFIXES": ("{} rm x", runs_rm),
    "CARRIERS": ("{} 'rm x'", tells_rm),
    "_GIT_RUNS": ("git {} x", risky),
    "_GIT_OPTIONS": ("git {} a push", pushes),
}
CASES = [(table, word) for table in NAMES for word in entries(table)]


@pytest.mark.parametrize(("table", "word"), CASES, ids=[f"{table} {word}" for table, word in CASES])
def test_each_name_that_forbids_is_needed(table: str, word: str) -> None:
    template, holds = NAMES[table]
    assert holds(program_table, template.format(word))
    assert not holds(without(table, word), template.format(word))


FLAGS = {
    "find": "-exec -execdir -ok -okdir -delete -fprint0 -fls -files0-from",
    "fd": "-x --exec=rm",
    "fdfind": "-x --exec=rm",
    "tar": "--checkpoint=1 --to-command=x --use-compress-program=x --info-script=x --new-volume-script=x --rmt-command=x --rsh-command=x "
    "--index-file=x -I xIf",
    "rg": "--pre=x --hostname-bin=x --search-zip -z",
    "sort": "-o --output=x --compress-program=x --temporary-directory=x",
    "tree": "-o",
    "diff": "--output=x",
    "file": "-C --compile",
    "rsync": "-e --rsh=x",
    "scp": "-o",
    "man": "-P",
    "less": "+x -o --log-file=x --lesskey-file=x",
    "printf": "-v",
    "date": "-s --set=x --file=x --reference=x",
    "jq": "-f --from-file --slurpfile --rawfile --library-path",
    "make": "--eval=x -f --file=x --makefile=x --directory=x SHELL=x CFLAGS=x",
    "git": "-c --exec-path=x --config-env=x --upload-pack=x --receive-pack=x --ext-diff --textconv --output=x --open-files-in-pager "
    "--git-dir=x --work-tree=x --no-index --paginate",
}
"""For each program flags by which it writes or runs something; each alternative of its pattern is the only one to hold back one of them."""


def patterns() -> Iterator[tuple[str, str]]:
    """The programs with risky flags, and their patterns."""
    yield from re.findall(r'^ {4}"(\w+)": r"(.*)",$', segment("_RISKY_FLAGS"), re.MULTILINE)
    yield "git", compiled("_GIT_RISKY")


def compiled(name: str) -> str:
    """The text of a pattern of the module."""
    found = re.search(rf'^{name} = re\.compile\(r"(.*)"\)$', PROGRAMS, re.MULTILINE)
    assert found
    return found[1]


def fewer(pattern: str) -> Iterator[str]:
    """The pattern without each of its alternatives, at any depth."""
    starts, bars = [[0]], list[list[int]]()
    for at, c in enumerate(pattern):
        if c == "(":
            starts.append([at + 1])
        elif c == "|":
            starts[-1].append(at + 1)
        elif c == ")":
            bars.append([*starts.pop(), at + 1])
    bars.append([*starts.pop(), len(pattern) + 1])
    for group in bars:
        for begin, end in pairwise(group):
            if len(group) > 2:
                last = end == group[-1]
                yield pattern[: begin - last] + pattern[end - last :]


RISKS = list(patterns())


@pytest.mark.parametrize(("name", "pattern"), RISKS, ids=[name for name, _ in RISKS])
def test_each_alternative_of_a_risky_flag_is_needed(name: str, pattern: str) -> None:
    flags = [words(f"{name} {flag} a") for flag in FLAGS[name].split()]
    assert all(map(program_table.find_risk, flags))
    for instead in (r"(?!)", *fewer(pattern)):
        place = (
            f'_GIT_RISKY = re.compile(r"{pattern}"' if name == "git" else f'"{name}": r"{pattern}"'
        )
        assert PROGRAMS.count(place) == 1
        module = made(PROGRAMS.replace(place, place.replace(pattern, instead)))
        assert not all(map(module.risk, flags)), instead


def test_each_way_to_run_what_follows_is_needed() -> None:
    flags = [
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "-x",
        "-X",
        "--pre",
        "--exec",
        "--exec-batch",
        "--hostname-bin",
    ]
    pattern = compiled("_RUNS_NEXT")

    def held(module: Any) -> bool:
        return all(runs_rm(module, f"find . {flag} rm x") for flag in flags)

    assert held(program_table)
    for instead in fewer(pattern):
        assert not held(made(PROGRAMS.replace(f'r"{pattern}"', f'r"{instead}"', 1))), instead


DOUBTS = {
    'f"longer than {LONGEST:,} characters"': "ls; " * 3_000,
    'f"holds the invisible character U+{ord(odd):04X}"': "ls \u200ba",
    '"it is no valid bash"': "!",
    '"a piece of it was not understood"': "\r[[",
    '"its end was not understood"': "[\x0b",
    '"nested too deep"': "(" * 70 + "ls" + ")" * 70,
    "f\"{node.type.replace('_', ' ')} is not judged\"": "select x in a; do ls; done",
    '"backslashes inside backquotes are not judged"': "echo `ls \\\\a`",
    '"a # inside a word was taken for a comment"': "a#b",
    '"a piece of text holds an expansion"': 'echo ${x/a"$(declare \\)}',
    "word.doubt": "\xa0!",
    'f"the expansion {self.text(node)[:40]} is not judged"': "ls ${x@P}",
    '"a line break inside a command"': "tr\rp",
    '"two words without a blank between them"': "x(=a",
    "f\"{child.type.replace('_', ' ')} as an argument is not judged\"": "x(=a",
    '"the name of a program was not understood"': '$"ls"',
    'f"{word.raw} is not judged"': "! !",
    "f\"{value.type.replace('_', ' ')} in an assignment is not judged\"": "a=(b c)",
    '"an assignment was not understood"': "a[1]=b",
    '"the name of a function was not understood"': "f-+x() { ls; }",
    '"arithmetic is not judged"': "((x=1))",
    'f"the test {self.text(child)} is not judged"': "[ -v x ]",
    '"an expansion without quotes inside [ ]"': "[ $x = y ]",
    'f"{child.type} inside a test is not judged"': "([ -v)",
    '"words behind a redirect"': "! e>\x0bcho ''",
    'f"{child.type} as a target is not judged"': "ls 3<>a",
    '"a here-string was not understood"': "cat <<<) '[ ';''",
    '"a here-document was not understood"': "cat <<E$x\na\n",
    '"a here-document ends otherwise than it seems"': "cat <<E\n[[\nE;",
    '"two here-documents on one line"': "cat <<E <<F\na\nE\nb\nF",
    '"a here-document holds an expansion"': "cat <<E\n$x\nE",
}
ONLY_BY_ANOTHER_GRAMMAR = {'f"the redirect {operator} is not judged"'}
"""This one knows no other operator; a later one may."""
SITES = [
    (found.start(1), found[2])
    for found in re.finditer(r"((?:self|reader)\.doubt)\((.+)\)$", SHELL, re.MULTILINE)
]


def test_every_doubt_is_tried() -> None:
    assert {what for _, what in SITES} == DOUBTS.keys() | ONLY_BY_ANOTHER_GRAMMAR


@pytest.mark.parametrize(("at", "what"), SITES, ids=[what for _, what in SITES])
def test_each_doubt_is_needed(at: int, what: str) -> None:
    if what not in ONLY_BY_ANOTHER_GRAMMAR:
        module = made(SHELL[:at] + re.sub(r"^\w+\.doubt", "str", SHELL[at:]))
        assert parse_command(DOUBTS[what]).doubts != module.parse(DOUBTS[what]).doubts
