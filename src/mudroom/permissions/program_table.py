"""What is known of programs: which only read, which run others, and the flags by which a harmless one writes or runs something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .shell_words import SimpleCommand, Word, word_set

READING_PROGRAMS = word_set(
    "cat head tail wc pwd whoami id ls du df cut tr nl rev tac paste comm diff cmp md5sum sha1sum sha256sum sha512sum cksum stat "
    "uname basename dirname realpath readlink column expand unexpand fold od strings seq grep egrep fgrep rg jq which type cd"
)
"""Programs that only read, whatever their flags but those in `risk`. `cd` changes what the rest is relative to: see `judge`."""
FILELESS_PROGRAMS = word_set(
    "echo printf true false : test [ sleep exit return break continue shift"
)
"""Programs that touch no file at all."""
_GIT_READS = word_set(
    "status log diff show rev-parse ls-files ls-tree blame describe shortlog cat-file rev-list name-rev merge-base whatchanged grep"
)
_GIT_LISTS = {
    "branch": {"", "-a", "-r", "-v", "-vv", "--list", "--all", "--show-current", "-av"},
    "remote": {"", "-v"},
    "tag": {"", "-l", "--list"},
    "stash": {"list"},
    "worktree": {"list"},
}
_GIT_OPTIONS = {
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
    "--super-prefix",
    "--attr-source",
}
_VERSIONS = {"--version", "-V"}

SHELLS = word_set("sh bash dash zsh ksh ash fish rbash mksh")
INTERPRETERS = word_set(
    "python perl ruby node nodejs deno bun php lua luajit tclsh Rscript osascript pwsh pypy awk gawk mawk nawk"
)
RUNNERS = SHELLS | word_set(
    "env sudo doas su xargs timeout gtimeout nohup setsid nice ionice stdbuf time command builtin exec busybox toybox eval source "
    "ssh watch parallel script flock chroot unshare nsenter taskset chrt prlimit runuser strace ltrace gdb coproc systemd-run "
    "setarch linux32 linux64 catchsegv valgrind perf entr dbus-run-session xvfb-run fakeroot proot firejail bwrap npx uvx pipx uv "
    "noglob rlwrap unbuffer caffeinate setpriv capsh tmux screen"
)
"""Programs that run their own arguments."""
_PACKAGE_RUNNERS = word_set("npx uvx pipx uv")
"""Those of them that a rule is meant to allow together with what they run."""
TEXT_RUNNERS = (
    RUNNERS
    | INTERPRETERS
    | word_set(
        "find fd fdfind trap alias expect docker podman kubectl at batch crontab make git rg sed vim vi ex ed emacs less man tar rsync "
        "scp sftp socat nc ncat"
    )
)
"""Programs that may run a text they are given."""
_RUNS_NEXT = re.compile(r"-(exec|execdir|ok|okdir|x|X)|--(pre|exec|exec-batch|hostname-bin)")
NEVER_ALLOWED = word_set(
    "eval source . exec trap alias enable coproc watch setsid su builtin hash shopt set read mapfile readarray getopts"
)
"""Programs no rule with a wildcard allows: what they run, or change for what runs after them, is not in their name."""
SAFE_VARIABLES = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|NODE_ENV|CI|DEBUG|VERBOSE|RUST_BACKTRACE|RUST_LOG"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8|PYTHONHASHSEED|GOOS|GOARCH|CGO_ENABLED|SOURCE_DATE_EPOCH|MUDROOM_LONG"
)
"""Variables that decide nothing about what is run: a command may be given these and still be allowed by its rule."""
_DATES = re.compile(r"\+.*|-u|-I\w*|--utc|--iso-8601(=\w+)?|-R")
_DURATION = re.compile(r"\d+(\.\d+)?[smhd]?")
_SED = re.compile(
    r"(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]|s([/|,#:@])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*"
)
_RISKY_FLAGS = {
    "find": r"-(exec|execdir|ok|okdir|delete|fprint\w*|fls|files0-from)",
    "fd": r"-\w*[xX]\w*|--exec.*",
    "fdfind": r"-\w*[xX]\w*|--exec.*",
    "tar": r"--(ch|to|us|inf|new|rmt|rsh|ind).*|-[^-]*[IFP].*|[A-Za-z]*[IF][A-Za-z]*",
    "rg": r"--(pre|hostname-bin|search-zip).*|-\w*z\w*",
    "sort": r"-\w*[oT].*|--(o|c|t).*",
    "tree": r"-\w*[oR]\w*",
    "diff": r"--o.*",
    "file": r"-\w*[CS]\w*|--compile",
    "rsync": r"-\w*e.*|--rs.*",
    "scp": r"-.*",
    "man": r"-.*",
    "less": r"\+.*|-\w*[oOkK].*|--(log|lesskey).*",
    "printf": r"-v.*",
    "date": r"-\w*[sfr]\w*|--(set|file|reference).*",
    "jq": r"-\w*[fL].*|--(from-file|slurpfile|rawfile|library).*",
    "make": r"--eval.*|-\w*[fCI].*|--(file|makefile|directory)=?.*|SHELL=.*|.*FLAGS=.*",
}
_GIT_RISKY = re.compile(r"-[cOx].*|--(exe|conf|upl|rec|ext|textc|ou|op|git-d|work|no-i|pag).*")
_GIT_RUNS = {
    "bisect",
    "submodule",
    "filter-branch",
    "difftool",
    "mergetool",
    "config",
    "rebase",
    "hook",
    "daemon",
    "instaweb",
    "alias",
}


def program_name(words: Sequence[Word]) -> str:
    """The name of the program, without its folder; "" when it is not known before it runs."""
    return words[0].value.rpartition("/")[2] if words and words[0].value else ""


def strip_wrappers(words: Sequence[Word]) -> Sequence[Word]:
    """The command inside the wrappers that only set time, priority or buffers; the words themselves when there is none.

    `xargs` adds a word that is not known.
    """
    for _ in range(20):
        inner = _unwrap(words)
        if inner is None:
            return words
        words = inner
    return words


def _unwrap(words: Sequence[Word]) -> Sequence[Word] | None:
    name = words[0].value if words else None
    values = [word.value for word in words]
    at = 1
    if name in ("nohup", "time", "command", "noglob"):
        at += len(values) > 1 and name == "time" and values[1] == "-p"
    elif name == "timeout":
        at = _skip_options(
            values,
            {"-k", "-s"},
            {"--foreground", "--preserve-status", "-v", "-p"},
            r"--(kill-after|signal)=\w+",
        )
        if at < len(values) and not _DURATION.fullmatch(values[at] or ""):
            return None
        at += 1
    elif name == "nice":
        at = _skip_options(values, {"-n"}, set(), r"-\d+|-n-?\d+|--adjustment=-?\d+")
    elif name == "stdbuf":
        at = _skip_options(
            values, {"-i", "-o", "-e"}, set(), r"-[ioe]\w+|--(input|output|error)=\w+"
        )
    elif name == "xargs":
        at = _skip_options(
            values,
            {"-n", "-P", "-L"},
            {"-0", "-r", "-t", "--null", "--no-run-if-empty"},
            r"-[nPL]\d+",
        )
        inner = [*words[at:], Word("…", None)]
        return (
            inner
            if len(inner) > 1 and values[at] is not None and not (values[at] or "-").startswith("-")
            else None
        )
    else:
        return None
    return (
        words[at:]
        if at < len(words) and values[at] is not None and not (values[at] or "-").startswith("-")
        else None
    )


def _skip_options(
    values: Sequence[str | None], paired: set[str], single: set[str], joined: str
) -> int:
    """Index of the first word that is none of the options."""
    at = 1
    while at < len(values):
        value = values[at] or ""
        if value in paired:
            at += 2
        elif value in single or re.fullmatch(joined, value):
            at += 1
        else:
            break
    return at


def find_risk(words: Sequence[Word]) -> str:
    """Why a rule with a wildcard, or being known to read, does not suffice for this command; "" if it does."""
    name = program_name(words)
    if not name:
        return "which program it runs is known only when it runs"
    runs = (
        name in RUNNERS - _PACKAGE_RUNNERS
        and len(words) > 1
        and not (name == "command" and words[1].value in ("-v", "-V"))
    )
    if runs or name in NEVER_ALLOWED or name in SHELLS:
        return f"{name} runs what it is given"
    arguments = [word.value for word in words[1:]]
    if name == "git":
        return _git_risk(words)
    if re.sub(r"[\d.]+$", "", name) in INTERPRETERS:
        return _interpreter_risk(name, arguments)
    if name == "sed":
        return _sed_risk(arguments)
    if name in ("test", "["):
        return _test_risk(words)
    flags = _RISKY_FLAGS.get(name)
    if flags is None:
        return ""
    unsure = next(
        (word.raw for word in words[1:] if word.value is None and not _plain_start(word)), ""
    )
    if unsure and name != "printf":
        return f"{unsure} could become a flag that makes {name} run or write something"
    found = next((value for value in arguments if value and re.fullmatch(flags, value)), "")
    return f"{name} {found} can run or write something" if found else ""


def _plain_start(word: Word) -> bool:
    """Whether a word that is not known at least begins with letters or a folder, or is a pipe, so that it becomes no flag."""
    return word.raw.startswith("<(") or (
        bool(re.match(r"[\w./~][\w./]*[*?\[]", word.raw))
        and "$" not in word.raw
        and "`" not in word.raw
    )


def _git_risk(words: Sequence[Word]) -> str:
    arguments = [word.value for word in words[1:]]
    if any(word.value is None and not _plain_start(word) for word in words[1:]):
        return "a word of this git command could become a flag that runs or writes something"
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if found := next(
        (value for value in before if value and (_GIT_RISKY.fullmatch(value) or "ext::" in value)),
        "",
    ):
        return f"git {found} can run or write something"
    name = next((value for value in before if value and not value.startswith("-")), "")
    return f"git {name} can run something" if name in _GIT_RUNS else ""


def _interpreter_risk(name: str, arguments: Sequence[str | None]) -> str:
    if "awk" in name:
        return f"{name} can run and write what its program says"
    first = arguments[0] if arguments else ""
    if first in ("-m", "--version", "-V") or (first and not first.startswith("-")):
        return ""
    return f"{name} runs code that is not judged"


def _sed_risk(arguments: Sequence[str | None]) -> str:
    if any(value is None for value in arguments):
        return "a word of this sed command is known only when it runs"
    flags = [
        value
        for value in arguments
        if value and value.startswith("-") and value not in ("-n", "-E", "-r", "-e")
    ]
    scripts = [value for value in arguments if value and not value.startswith("-")][:1]
    if flags or arguments.count("-e") > 1 or not all(_SED.fullmatch(script) for script in scripts):
        return "this sed command may write or run something"
    return ""


def _test_risk(words: Sequence[Word]) -> str:
    inner = [word for word in words[1:] if word.value not in ("]", "!")]
    known = (
        len(inner) < 2
        or (len(inner) == 2 and inner[0].value not in (None, "-v", "-R"))
        or (len(inner) == 3 and inner[1].value is not None)
    )
    return (
        ""
        if known and not any(word.value in ("-v", "-R") for word in inner)
        else "this test is not understood"
    )


def is_read_only(words: Sequence[Word]) -> bool:
    """Whether the command changes nothing and runs nothing else."""
    name = words[0].value if words else None
    if not name or find_risk(words):
        return False
    arguments = [word.value or "" for word in words[1:]]
    if name == "cd":
        return len(arguments) == 1 and bool(arguments[0]) and not arguments[0].startswith("-")
    if name in READING_PROGRAMS | FILELESS_PROGRAMS:
        return True
    if name == "git":
        return _git_reads(arguments)
    if name == "command":
        return arguments[:1] in (["-v"], ["-V"])
    if name in ("sed", "find", "sort", "tree", "file"):
        return True
    if name == "date":
        return all(_DATES.fullmatch(value) for value in arguments)
    return (
        len(arguments) == 1
        and arguments[0] in _VERSIONS
        and bool(re.fullmatch(r"(python|node|npm|pip|cargo|rustc|go|ruby|git|make)[\d.]*", name))
    )


def _git_reads(arguments: Sequence[str]) -> bool:
    while arguments and arguments[0] in (
        "--no-pager",
        "-P",
        "--no-optional-locks",
        "--literal-pathspecs",
    ):
        arguments = arguments[1:]
    if not arguments:
        return False
    name, rest = arguments[0], arguments[1:]
    if name in _GIT_LISTS:
        return all(value in _GIT_LISTS[name] for value in (rest or [""]))
    return name in _GIT_READS


def expand_commands(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """The command, and whatever it may run according to its own words: what deny and ask rules are compared with."""
    yield tuple(words)
    name = re.sub(r"[\d.]+$", "", program_name(words))
    if name == "git":
        yield (Word("git", "git"), *_without_options(words[1:]))
    for at in range(1, len(words)):
        runs = (
            name in RUNNERS
            or program_name(words) in RUNNERS
            or not name
            or _RUNS_NEXT.fullmatch(words[at - 1].value or "")
        )
        if runs and words[at].value and not (words[at].value or "").startswith("-"):
            yield tuple(words[at:])


def _without_options(words: Sequence[Word]) -> Sequence[Word]:
    at = 0
    while at < len(words) and (words[at].value or "").startswith("-"):
        at += 2 if words[at].value in _GIT_OPTIONS else 1
    return words[at:]


_LITERAL = re.compile(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`[^`]*`")


def extract_texts(command: SimpleCommand) -> Iterator[str]:
    """Pieces of a command that another program may take for a command: of shells' -c, of settings, of code, for a remote shell."""
    words, name = command.words, re.sub(r"[\d.]+$", "", program_name(command.words))
    if name and name not in TEXT_RUNNERS and program_name(words) not in TEXT_RUNNERS:
        return
    for value in filter(None, (word.value for word in words[1:])):
        parts = value.split("=")
        yield from ("=".join(parts[at:]).lstrip("!") for at in range(1, len(parts)))
        if re.search(r"[\s;&|(`'\"]", value):
            yield value
            found = [text[1:-1] for text in re.findall(_LITERAL, value)]
            yield from found
            yield " ".join(found)
        if name == "sed":
            yield from re.findall(r"e\s+(.+)", value)
            yield from value.split("/")
