"""Tables of programs: which only read, which run other programs, and which flags are risky."""

from __future__ import annotations

from .._platform.lazy_pattern import compile_later
from .shell_words import split_word_set

READING_PROGRAMS = split_word_set(
    "cat head tail wc pwd whoami id ls du df cut tr nl rev tac paste comm diff cmp md5sum sha1sum "
    "sha256sum sha512sum cksum stat uname basename dirname realpath readlink column expand "
    "unexpand fold od strings seq grep egrep fgrep rg jq which type cd"
)
"""Programs that only read, with any flags except those that `find_risk` reports."""

FILELESS_PROGRAMS = split_word_set(
    "echo printf true false : test [ sleep exit return break continue shift"
)
"""Programs that open no file."""

GIT_READING_COMMANDS = split_word_set(
    "status log diff show rev-parse ls-files ls-tree blame describe shortlog cat-file rev-list "
    "name-rev merge-base whatchanged grep"
)
GIT_LISTING_ARGUMENTS = {
    "branch": {"", "-a", "-r", "-v", "-vv", "--list", "--all", "--show-current", "-av"},
    "remote": {"", "-v"},
    "tag": {"", "-l", "--list"},
    "stash": {"list"},
    "worktree": {"list"},
}
"""Git commands that only list with these arguments; "" is no argument."""
GIT_OPTIONS_WITH_VALUE = split_word_set(
    "-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source"
)

SHELLS = split_word_set("sh bash dash zsh ksh ash fish rbash mksh")
INTERPRETERS = split_word_set(
    "python perl ruby node nodejs deno bun php lua luajit tclsh Rscript osascript pwsh pypy awk "
    "gawk mawk nawk"
)
RUNNING_MODULES = split_word_set(
    "asyncio cProfile code coverage debugpy doctest idlelib memory_profiler pdb profile runpy "
    "scalene timeit trace viztracer"
)
"""Modules of Python that run code from their own arguments."""
RUNNERS = SHELLS | split_word_set(
    "env sudo doas su xargs timeout gtimeout nohup setsid nice ionice stdbuf time command builtin "
    "exec busybox toybox eval source ssh watch parallel script flock chroot unshare nsenter "
    "taskset chrt prlimit runuser strace ltrace gdb coproc systemd-run setarch linux32 linux64 "
    "catchsegv valgrind perf entr dbus-run-session xvfb-run fakeroot proot firejail bwrap npx uvx "
    "pipx uv noglob rlwrap unbuffer caffeinate setpriv capsh tmux screen"
)
"""Programs that run their own arguments."""
PACKAGE_RUNNERS = split_word_set("npx uvx pipx uv")
"""Runners for which an allow rule also allows the program that they run."""
TEXT_RUNNERS = (
    RUNNERS
    | INTERPRETERS
    | split_word_set(
        "find fd fdfind trap alias expect docker podman kubectl at batch crontab make git rg sed "
        "vim vi ex ed emacs less man tar rsync scp sftp socat nc ncat"
    )
)
"""Programs that may run a text they get as an argument."""
NEVER_ALLOWED = split_word_set(
    "eval source . exec trap alias enable coproc watch setsid su builtin hash shopt set read "
    "mapfile readarray getopts"
)
"""Programs that no rule with a wildcard allows.

Their name does not tell what they run, or what they change for later commands.
"""

SUBCOMMAND_PROGRAMS = split_word_set(
    "git npm pnpm yarn cargo go make gmake pip pip3 poetry pdm hatch rake bundle dotnet mvn gradle "
    "helm terraform gh brew apt apt-get dnf systemctl rustup conda nox tox "
    "just task mix composer swift zig bazel nx turbo"
)
"""Programs whose first argument says what they do: an approval covers only this subcommand."""
RUNNING_SUBCOMMANDS = split_word_set("run run-script exec x dlx")
"""Subcommands whose next argument says what they run: an approval covers only this."""
SCRIPT_RUNNERS = split_word_set("npm pnpm yarn cargo go just task mix composer swift zig nx turbo")
"""Programs whose `run` takes the name of a script or target, not a program."""
CAUTIOUS_PROGRAMS = split_word_set(
    "rm rmdir mv dd chmod chown chgrp kill pkill killall shred truncate mount umount curl wget "
    "ssh scp sftp rsync nc ncat socat reboot shutdown crontab at tee docker podman kubectl"
)
"""Programs for which one approval never covers other arguments."""

RUN_FLAG = compile_later(r"-(exec|execdir|ok|okdir|x|X)|--(pre|exec|exec-batch|hostname-bin)")
"""Flags whose next word is a program to run."""

RISKY_FLAGS = {
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
"""Program -> the flags by which it writes or runs something."""
GIT_RISKY_FLAG = compile_later(
    r"-[cOx].*|--(exe|conf|upl|rec|ext|textc|ou|op|git-d|work|no-i|pag).*"
)
GIT_RUNNING_COMMANDS = split_word_set(
    "bisect submodule filter-branch difftool mergetool config rebase hook daemon instaweb alias"
)

SAFE_VARIABLE = compile_later(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|NODE_ENV|CI|DEBUG"
    r"|VERBOSE|RUST_BACKTRACE|RUST_LOG|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8"
    r"|PYTHONHASHSEED|GOOS|GOARCH|CGO_ENABLED|SOURCE_DATE_EPOCH|MUDROOM_LONG"
)
"""Variables that do not change which program runs: a command with them is allowed by its rule."""
