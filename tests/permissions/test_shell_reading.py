"""Commands as the shell parser reads them: words, variables and redirects, where bash puts them."""

from __future__ import annotations

import pytest

from mudroom.permissions.shell_parser import parse_command

from .conftest import RuleJudge

READINGS = {
    "cat <<E > out b\nx\nE": ["cat b | << >out"],
    "cat <<-E\n\tplain\n\tE": ["cat | <<"],
    "cat <<'E'\n$x `ls`\nE": ["cat | <<"],
    "cat <<< a b": ["cat b | <<<"],
    'cat <<< "$(rm x)"': ["rm x", "cat | <<<"],
    "ls &> a": ["ls | &>a"],
    "> out ls b": ["ls b | >out"],
    "x='a\nb' ls": ["x: ls"],
    "if ls; then rm x; fi > out": ["ls", "rm x", " | >out"],
    "while read l; do rm $l; done < f": ["read l", "rm $l", " | <f"],
    "ls a 2>&- b": ["ls a b | >&-"],
    "ls <&-a": ["ls a | <&-"],
    "ls > a b $(rm x)": ["ls b $(rm x) | >a", "rm x"],
    "cat <<E b $(rm x)\nE": ["cat b $(rm x) | <<", "rm x"],
    "{ ls; rm x; } > out": ["ls", "rm x", " | >out"],
    "export A=1 B C=2": ["A B C: export"],
    "declare -x y": ["y: declare -x"],
    "readonly $x": ["readonly $x"],
    "A=1 B=$(rm x)": ["rm x", "A B:"],
    "for f in $(rm x); do ls; done": ["f:", "rm x", "ls"],
    "case $x in a) rm y;; esac": ["rm y"],
    "[[ -f $(rm x) ]] && ls": ["rm x", "ls"],
}


def describe(command: str) -> list[str]:
    """Return each simple command as `variables: words | redirects`."""
    return [
        (f"{' '.join(part.variables)}: " if part.variables else "")
        + " ".join(word.raw if word.value is None else word.value for word in part.words)
        + (" | " if part.redirects else "")
        + " ".join(
            redirect.operator + (redirect.target.raw if redirect.target else "")
            for redirect in part.redirects
        )
        for part in parse_command(command).commands
    ]


@pytest.mark.parametrize("command", READINGS)
def test_words_and_redirects_are_those_of_bash(command: str) -> None:
    assert [part.strip() for part in describe(command)] == [
        part.strip() for part in READINGS[command]
    ]
    assert parse_command(command).problems == ()


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("cat <<E && rm a\nx\nE", ["cat <<E && rm a", "rm a"]),
        ("for f in a; do ls; done", ["for f", "ls"]),
        ("{ ls; } > a", ["ls", "{ ls; } > a"]),
        ("A=1 B=2", ["A=1 B=2"]),
    ],
)
def test_each_part_is_shown_on_one_line(command: str, texts: list[str]) -> None:
    assert [part.text for part in parse_command(command).commands] == texts


@pytest.mark.parametrize(
    "command",
    [
        "git <&-push",
        "git > $(true) push",
        "git >a push $(true)",
        "f() { git > $(true) push; }; f",
    ],
)
def test_a_redirect_between_two_words_hides_no_denied_command(
    judge_call: RuleJudge, command: str
) -> None:
    assert judge_call.bash(command, can_ask=False, deny=["Bash(git push:*)"]) == "deny"
    assert judge_call.bash(command, allow=["Bash(git)"]) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git {fd}>a push",
        "git {fd}<&- push",
        "git 0<<< w push",
    ],
)
def test_a_descriptor_that_was_read_as_a_word_is_a_problem(
    judge_call: RuleJudge, command: str
) -> None:
    assert "a descriptor of a redirect was not understood" in parse_command(command).problems
    assert judge_call.bash(command, can_ask=False, deny=["Bash(git push:*)"]) == "ask"


def test_a_flag_after_a_closed_descriptor_is_judged(judge_call: RuleJudge) -> None:
    assert judge_call.bash("find . <&- -delete") == "ask"
    assert judge_call.bash("find . <&- src") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git pu\\\nsh",
        "git x\\ \\\npush",
        'ls "$(git pu\\\nsh)"',
        'ls "${x:-"$(git pu\\\nsh)"}"',
        "ls x\\;\\\ny",
    ],
)
def test_a_line_break_that_joins_two_words_is_a_problem(
    judge_call: RuleJudge, command: str
) -> None:
    assert "a line break inside a word" in parse_command(command).problems
    assert judge_call.bash(command, can_ask=False, deny=["Bash(git push:*)"]) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "find . -del\\\nete",
        "cat src/a.py 2>&1\n\\\nrm src/a.py",
        "export A=1\n\\\nrm a",
        "ls -<<-E\n\tx\n\tE",
        'echo "$\\\n(rm a)"',
        "ls x$(ls)\\\ny",
    ],
)
def test_text_that_the_grammar_reads_as_one_harmless_command_is_asked(
    judge_call: RuleJudge, command: str
) -> None:
    assert parse_command(command).problems
    assert judge_call.bash(command) == "ask"


@pytest.mark.parametrize(
    "command", ["ls \\\n-la", "ls\\\n -la", "ls &&\\\nls", "ls |\\\nsort", "ls\\\n; ls", '"a\\\nb"']
)
def test_a_line_break_between_words_is_not_a_problem(command: str) -> None:
    assert parse_command(command).problems == ()


# --- text that bash may read differently is never certain


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
