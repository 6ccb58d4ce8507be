"""Programs and flags that no rule with a wildcard allows, and programs within other commands."""

from __future__ import annotations

import pytest

from mudroom.permissions.program_risk import find_risk
from mudroom.permissions.program_wrappers import expand_commands, extract_texts, get_program_name
from mudroom.permissions.shell_parser import parse_command
from mudroom.permissions.shell_words import Word

SHELLS = "ash bash dash fish ksh mksh rbash sh zsh"
INTERPRETERS = (
    "Rscript awk bun deno gawk lua luajit mawk nawk node nodejs osascript perl php pwsh pypy "
    "python ruby tclsh"
)
NEVER_ALLOWED = (
    ". alias builtin coproc enable eval exec getopts hash mapfile read readarray set setsid shopt "
    "source su trap watch"
)
RUNNERS = (
    "builtin busybox bwrap caffeinate capsh catchsegv chroot chrt command coproc dbus-run-session "
    "doas entr env eval exec fakeroot firejail flock gdb gtimeout ionice linux32 linux64 ltrace "
    "nice noglob nohup npx nsenter parallel perf pipx prlimit proot rlwrap runuser screen script "
    "setarch setpriv setsid source ssh stdbuf strace su sudo systemd-run taskset time timeout "
    "tmux toybox unbuffer unshare uv uvx valgrind watch xargs xvfb-run"
)
TEXT_RUNNERS = (
    "alias at batch crontab docker ed emacs ex expect fd fdfind find git kubectl less make man nc "
    "ncat podman rg rsync scp sed sftp socat tar trap vi vim"
)
GIT_RUNNING_COMMANDS = (
    "alias bisect config daemon difftool filter-branch hook instaweb mergetool rebase submodule"
)
GIT_OPTIONS = (
    "--attr-source --config-env --exec-path --git-dir --namespace --super-prefix --work-tree -C -c"
)


def parse_words(command: str) -> tuple[Word, ...]:
    return parse_command(command).commands[0].words


def runs_rm(command: str) -> bool:
    return any(get_program_name(inner) == "rm" for inner in expand_commands(parse_words(command)))


@pytest.mark.parametrize("name", SHELLS.split())
def test_a_shell_is_a_risk(name: str) -> None:
    assert find_risk(parse_words(f"{name} -c 'rm x'"))
    assert find_risk(parse_words(f"{name} script"))


@pytest.mark.parametrize("name", INTERPRETERS.split())
def test_code_for_an_interpreter_is_a_risk(name: str) -> None:
    assert find_risk(parse_words(f"{name} -c x"))


@pytest.mark.parametrize("name", NEVER_ALLOWED.split())
def test_a_program_that_changes_later_commands_is_a_risk(name: str) -> None:
    assert find_risk(parse_words(name))


@pytest.mark.parametrize("name", [*RUNNERS.split(), *SHELLS.split()])
def test_the_arguments_of_a_runner_are_a_command(name: str) -> None:
    assert runs_rm(f"{name} rm x")


@pytest.mark.parametrize(
    "name", [*RUNNERS.split(), *SHELLS.split(), *INTERPRETERS.split(), *TEXT_RUNNERS.split()]
)
def test_a_text_for_a_program_that_runs_texts_is_a_command(name: str) -> None:
    assert "rm x" in extract_texts(parse_command(f"{name} 'rm x'").commands[0])


def test_a_text_for_another_program_is_no_command() -> None:
    assert list(extract_texts(parse_command("echo 'rm x'").commands[0])) == []


@pytest.mark.parametrize("name", GIT_RUNNING_COMMANDS.split())
def test_a_git_command_that_runs_programs_is_a_risk(name: str) -> None:
    assert find_risk(parse_words(f"git {name} x"))


@pytest.mark.parametrize("option", GIT_OPTIONS.split())
def test_the_value_of_a_git_option_is_not_the_git_command(option: str) -> None:
    commands = [
        [word.value for word in inner]
        for inner in expand_commands(parse_words(f"git {option} a push"))
    ]
    assert ["git", "push"] in commands


RUN_FLAGS = "-exec -execdir -ok -okdir -x -X --pre --exec --exec-batch --hostname-bin"


@pytest.mark.parametrize("flag", RUN_FLAGS.split())
def test_the_word_after_a_run_flag_is_a_command(flag: str) -> None:
    assert runs_rm(f"find . {flag} rm x")


RISKY_FLAGS = {
    "find": "-exec -execdir -ok -okdir -delete -fprint0 -fls -files0-from",
    "fd": "-x --exec=rm",
    "fdfind": "-x --exec=rm",
    "tar": "--checkpoint=1 --to-command=x --use-compress-program=x --info-script=x "
    "--new-volume-script=x --rmt-command=x --rsh-command=x --index-file=x -I xIf",
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
    "git": "-c --exec-path=x --config-env=x --upload-pack=x --receive-pack=x --ext-diff --textconv "
    "--output=x --open-files-in-pager --git-dir=x --work-tree=x --no-index --paginate",
    "sed": "-i -f",
}
"""Program -> flags by which it writes or runs something."""
FLAG_CASES = [(name, flag) for name, flags in RISKY_FLAGS.items() for flag in flags.split()]


@pytest.mark.parametrize(("name", "flag"), FLAG_CASES)
def test_a_flag_that_writes_or_runs_something_is_a_risk(name: str, flag: str) -> None:
    assert find_risk(parse_words(f"{name} {flag} a"))


@pytest.mark.parametrize(
    "command",
    ["sort -o'a\nb' x", "less -o'a\nb' x", "make --eval='a\nb'", "git -c'a\nb=x' log"],
)
def test_a_line_feed_in_its_value_hides_no_flag(command: str) -> None:
    assert find_risk(parse_words(command))


@pytest.mark.parametrize(
    "name", sorted(RISKY_FLAGS.keys() - {"scp", "man", "printf", "sed", "git"})
)
def test_an_unknown_word_could_be_a_risky_flag(name: str) -> None:
    assert "could become a flag" in find_risk(parse_words(f"{name} $x"))
    assert find_risk(parse_words(f"{name} a")) == ""


@pytest.mark.parametrize(
    "command",
    [
        "env x",
        "sed -i s/a/b/ f",
        "sed 's/a/b/w out' f",
        "sed s/a/b/e f",
        "sed -e p -e p f",
        'sed "$x" f',
        "awk '{print > \"a\"}' f",
        "git diff --output=a",
        "git clone ext::x",
        "git $x",
        "python3 -c 1",
        "find $x",
        "find . -delete",
        "test -v x",
        "test -R x",
        "test a b c d",
        "test $x a",
        "test a $x b",
        "$x",
    ],
)
def test_these_commands_are_a_risk(command: str) -> None:
    assert find_risk(parse_words(command))


@pytest.mark.parametrize(
    "command",
    [
        "ls $x",
        "sed -n 1,5p f",
        "sed s/a/b/g f",
        "python3 script.py",
        "python3 -m pytest",
        "npx prettier a",
        "command -v git",
        "find src/*.py",
        "test -f a",
        "test a = b",
        "test a = $x",
        "test -f $x",
        "test $x",
    ],
)
def test_these_commands_are_no_risk(command: str) -> None:
    assert find_risk(parse_words(command)) == ""
