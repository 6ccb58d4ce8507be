"""Problems of the shell parser: text that bash may read differently is never certain."""

from __future__ import annotations

import pytest

from mudroom.permissions.shell_parser import parse_command

PROBLEMS = {
    "ls; " * 3_000: "longer than 10,000 characters",
    "ls \u200ba": "holds the invisible character U+200B",
    "ls\x07": "holds the invisible character U+0007",
    "!": "it is not valid bash",
    "ls $(ls": "it is not valid bash",
    "\r[[": "a part of it was not understood",
    "[\x0b": "its end was not understood",
    "(" * 70 + "ls" + ")" * 70: "nested too deeply",
    "select x in a; do ls; done": "select is not judged",
    "echo `ls \\\\a`": "backslashes inside backquotes are not judged",
    "a#b": "a # inside a word was read as a comment",
    'echo ${x/a"$(declare \\)}': "a pattern holds an expansion",
    "\xa0!": "a word was not understood",
    "ls ${x@P}": "the expansion ${x@P} is not judged",
    "tr\rp": "a line break inside a command",
    "x(=a": "two words without a blank between them",
    "x(=b": "subshell as an argument is not judged",
    '$"ls"': "the name of a program was not understood",
    "! !": "! is not judged",
    "a=(b c)": "array in an assignment is not judged",
    "a[1]=b": "an assignment was not understood",
    "f-+x() { ls; }": "the name of a function was not understood",
    "((x=1))": "arithmetic is not judged",
    "[ -v x ]": "the test -v is not judged",
    "[ $x = y ]": "an expansion without quotes inside [ ]",
    "([ -v)": "- inside a test is not judged",
    "! e>\x0bcho ''": "words after a redirect",
    "ls 3<>a": "ERROR as a target is not judged",
    "cat <<<) '[ ';''": "a here-string was not understood",
    "cat <<E$x\na\n": "a here-document was not understood",
    "cat <<E\n[[\nE;": "a here-document ends elsewhere in bash",
    "cat <<ls\na\n ls\nls\nls": "a here-document ends elsewhere in bash",
    "cat <<E <<F\na\nE\nb\nF": "two here-documents on one line",
    "cat <<E\n$x\nE": "a here-document holds an expansion",
}


@pytest.mark.parametrize(("command", "problem"), PROBLEMS.items(), ids=[*PROBLEMS.values()])
def test_text_that_bash_may_read_differently_is_a_problem(command: str, problem: str) -> None:
    assert problem in parse_command(command).problems


@pytest.mark.parametrize(
    "command",
    [
        "ls -la 'a b' \"c\" d\\ e",
        "cat <<E\nplain\nE",
        "cat <<'E'\n$x\nE",
        "[ -f a ] && ls",
        "for f in a b; do echo $f; done",
        "x=1 make a > b 2>&1",
        "f() { ls; }; f",
        "echo ${x:-text} ${#x} $((1 + 2))",
        "diff <(ls a) <(ls b)",
        "# a comment\nls",
    ],
)
def test_ordinary_bash_is_not_a_problem(command: str) -> None:
    assert parse_command(command).problems == ()
