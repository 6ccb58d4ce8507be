"""What programs read, write and run, depending on their flags and operands.

This is the only table of such facts. `program_risk` judges single commands by
it, and decides which commands an approval covers.
"""

from __future__ import annotations

from msgspec import Struct

from .._platform.patterns import compile_later
from .shell_words import split_word_set

# Programs that only read, with any flags except those `find_risk` reports. None of them runs a
# program because of a file in the working folder: rg takes its configuration only from
# RIPGREP_CONFIG_PATH, and jq modules cannot start anything.
READING_PROGRAMS = split_word_set(
    "cat head tail wc pwd whoami id ls du df cut tr nl rev tac paste comm diff cmp md5sum sha1sum "
    "sha256sum sha512sum cksum stat uname basename dirname realpath readlink column expand "
    "unexpand fold od strings seq grep egrep fgrep rg jq which type cd"
)

# Programs that open no files.
FILELESS_PROGRAMS = split_word_set(
    "echo printf true false : test [ sleep exit return break continue shift"
)

GIT_READING_COMMANDS = split_word_set(
    "status log diff show rev-parse ls-files ls-tree blame describe shortlog cat-file rev-list "
    "name-rev merge-base whatchanged grep"
)
# Git commands that only list when given these arguments; "" means no argument.
GIT_LISTING_ARGUMENTS = {
    "branch": {"", "-a", "-r", "-v", "-vv", "--list", "--all", "--show-current", "-av"},
    "remote": {"", "-v"},
    "tag": {"", "-l", "--list"},
    "stash": {"list"},
    "worktree": {"list"},
}
GIT_OPTIONS_WITH_VALUE = split_word_set(
    "-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source"
)
# Git commands that run no program named by their arguments. Any other name may be an alias.
GIT_PLAIN_COMMANDS = (
    GIT_READING_COMMANDS
    | GIT_LISTING_ARGUMENTS.keys()
    | split_word_set(
        "add am annotate apply archive bundle check-attr check-ignore check-mailmap "
        "check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit "
        "commit-graph commit-tree count-objects diff-files diff-index diff-tree fast-export fetch "
        "for-each-ref format-patch fsck gc hash-object index-pack init interpret-trailers "
        "ls-remote mailinfo mailsplit merge merge-file merge-tree mktag mktree mv notes "
        "pack-objects pack-refs patch-id prune prune-packed pull push range-diff read-tree reflog "
        "repack replace rerere reset restore revert rm show-branch show-index show-ref "
        "sparse-checkout stage stripspace switch symbolic-ref unpack-file unpack-objects "
        "update-index update-ref var verify-commit verify-pack verify-tag version write-tree"
    )
)
# Programs that only print their version with `--version`.
VERSION_PROGRAMS = split_word_set("python node npm pip cargo rustc go ruby git make")
# Reading programs that obey files in the working folder. A repository's settings and attributes
# name programs that git runs (`core.fsmonitor`, filters, `textconv`, the transport of a partial
# clone). Version managers stand in for the others and read files such as `rust-toolchain.toml` or
# `.python-version` to choose what to start.
FOLDER_PROGRAMS = split_word_set("git python node npm pip cargo rustc go ruby")

SHELLS = split_word_set("sh bash dash zsh ksh ash fish rbash mksh csh tcsh yash nu xonsh elvish")
INTERPRETERS = split_word_set(
    "python perl ruby node nodejs deno bun php lua luajit tclsh Rscript osascript pwsh pypy awk "
    "gawk mawk nawk R julia guile erl elixir iex ipython bpython tsx ts-node coffee groovy jshell "
    "racket sbcl clisp ghci runghc ocaml octave wish gjs qjs irb"
)
# Programs that run their own arguments.
RUNNERS = SHELLS | split_word_set(
    "env sudo doas su xargs timeout gtimeout nohup setsid nice ionice stdbuf time command builtin "
    "exec busybox toybox coreutils eval source ssh watch parallel script flock chroot unshare "
    "nsenter taskset chrt prlimit runuser strace ltrace gdb lldb rr coproc systemd-run "
    "systemd-nspawn systemd-inhibit setarch linux32 linux64 catchsegv valgrind perf entr "
    "dbus-run-session dbus-launch xvfb-run fakeroot fakechroot proot firejail bwrap npx uvx pipx "
    "uv noglob rlwrap unbuffer caffeinate setpriv capsh tmux screen pkexec gosu su-exec sg newgrp "
    "run0 chpst setuidgid envdir softlimit run-parts cpulimit hyperfine eatmydata proxychains "
    "proxychains4 torsocks tsocks numactl direnv op watchexec nodemon onchange reflex tini "
    "dumb-init catatonit daemonize start-stop-daemon setlock lockrun choom faketime datefudge "
    "chronic ifne pee dotenv dotenvx doppler aws-vault sops concurrently cross-env ccache distcc "
    "sccache mosh pdsh xterm dtach abduco ld.so ld-linux-x86-64.so wine ldd nix nix-shell ssh-agent"
)
# For these, an allow rule also allows the program they run.
PACKAGE_RUNNERS = split_word_set("npx uvx pipx uv")
# Programs that may run text given as an argument.
TEXT_RUNNERS = (
    RUNNERS
    | INTERPRETERS
    | split_word_set(
        "find fd fdfind trap alias expect docker podman kubectl at batch crontab make git rg sed "
        "vim vi nvim ex ed emacs less man tar rsync scp sftp socat nc ncat sqlite3 psql mysql m4 dc"
    )
)
# No rule with a wildcard allows these: their names do not tell what they run or change for later
# commands.
NEVER_ALLOWED = split_word_set(
    "eval source . exec trap alias enable coproc watch setsid su builtin hash shopt set read "
    "mapfile readarray getopts ed ex vi vim nvim emacs expect sqlite3 psql mysql m4 dc socat at "
    "batch crontab"
)
# The word after such a flag is a program to run.
EXECUTING_FLAG = compile_later(r"-(exec|execdir|ok|okdir|x|X)|--(pre|exec|exec-batch|hostname-bin)")


def _match_flags(names: str) -> str:
    """Make a pattern for long flags, alone or with a value; `*` ends the shortest abbreviation."""
    choices: list[str] = []
    for name in names.split():
        start, _, rest = name.partition("*")
        choices.append(start + "".join(f"(?:{c}" for c in rest) + ")?" * len(rest))
    return rf"--(?:{'|'.join(choices)})(?:=.*)?"


_NPM = _match_flags(
    "script-s*hell she*ll node-op*tions git edito*r viewe*r pref*ix userc*onfig globalc*onfig "
    "init-m*odule onload-s*cript pyt*hon node-g*yp dir cwd"
)
_COMPILER = (
    r"-(wrapper|B|specs|fplugin|Xlinker|Wl,|load|Xclang|fuse-ld|T|Wp,|Wa,).*"
    r"|--(specs|ld-path|config|sysroot|plugin).*|@.*"
)

# Program -> flags that make it run something, or write something unexpected.
RISKY_FLAGS = {
    "find": r"-(exec|execdir|ok|okdir|delete|fprint\w*|fls|files0-from)",
    "fd": r"-[^\WxX]*+[xX]\w*|--exec.*",
    "fdfind": r"-[^\WxX]*+[xX]\w*|--exec.*",
    "tar": r"--(ch|to|us|inf|new|rmt|rsh|ind).*|-[^-IFP]*+[IFP].*|[A-EGHJ-Za-z]*+[IF][A-Za-z]*",
    "rg": r"--(pre|hostname-bin|search-zip).*|-[^\Wz]*+z\w*",
    "sort": r"-[^\WoT]*+[oT].*|--(o|c|t).*",
    "split": _match_flags("f*ilter"),
    "zip": r"-[^\WT]*+T.*|" + _match_flags("te*st unz*ip-command"),
    "tree": r"-[^\WoR]*+[oR]\w*",
    "diff": r"-[^\Wl]*+l\w*|--(o|pag).*",
    "file": r"-[^\WCSzZ]*+[CSzZ]\w*|" + _match_flags("c*ompile uncompress*-noreport"),
    "rsync": r"-[^\We]*+e.*|--rs.*",
    "scp": r"-.*",
    "sftp": r"-.*",
    "nc": r"-[^\Wec]*+[ec].*|--(sh-|lua-)?exec.*",
    "ncat": r"-[^\Wec]*+[ec].*|--(sh-|lua-)?exec.*",
    "man": r"-.*",
    "less": r"\+.*|-[^\WoOkK]*+[oOkK].*|--(log|lesskey).*",
    "printf": r"-v.*",
    "date": r"-[^\Wsfr]*+[sfr]\w*|--(set|file|reference).*",
    "jq": r"-[^\WfL]*+[fL].*|--(from-file|slurpfile|rawfile|library).*",
    "make": (
        r"-[^\WfCIE]*+[fCIE].*|(?!(?:V|VERBOSE|DEBUG|PREFIX|DESTDIR|CI|JOBS)=)[\w.]+[:+?!]*=.*|"
        + _match_flags("ev*al fil*e mak*efile dir*ectory inc*lude-dir")
    ),
    "install": _match_flags("strip-*program"),
    "go": r"--?(exec|toolexec|vettool|overlay|modfile|\w+flags|compiler|pkgdir|C)(=.*)?",
    "cargo": r"\+.*|-[ZC].*|" + _match_flags("config manifest-path"),
    "npm": r"-C|" + _NPM,
    "pnpm": r"-C.*|" + _NPM,
    "yarn": _NPM,
    "wget": r"-[^\We]*+e.*|" + _match_flags("ex*ecute use-a*skpass conf*ig"),
    "curl": r"-[^\WK]*+K.*|" + _match_flags("config engine"),
    "pandoc": r"-[FL].*|" + _match_flags("fi*lter lu*a-filter pdf-en*gine def*aults"),
    "apt": r"-[^\Woc]*+[oc].*|" + _match_flags("op*tion con*fig-file"),
    "apt-get": r"-[^\Woc]*+[oc].*|" + _match_flags("op*tion con*fig-file"),
    **dict.fromkeys(("gcc", "cc", "g++", "c++", "clang", "clang++"), _COMPILER),
}
GIT_RISKY_FLAG = compile_later(
    r"(?s)-[cOx].*|--(exe|conf|upl|rec|ext|textc|ou|op|git-d|work|no-i|pag).*"
)
# Git command -> further flags that make it run something.
GIT_COMMAND_FLAGS = {
    "clone": r"-[^\Wuc]*+[uc].*|"
    + _match_flags("u*pload-pack te*mplate conf*ig separ*ate-git-dir"),
    "init": _match_flags("te*mplate separ*ate-git-dir"),
    "fetch": _match_flags("u*pload-pack"),
    "pull": _match_flags("u*pload-pack"),
    "ls-remote": _match_flags("u*pload-pack e*xec"),
    "archive": _match_flags("exe*c o*utput"),
    "push": _match_flags("e*xec rece*ive-pack"),
}


class Writing(Struct, frozen=True):
    """How to tell from a command's words which files it changes, if all flags match `flags`.

    The operands it changes: "all"; "last", the target of a copy; "moved", sources and target;
    "packed", all, with and without a suffix; "downloads" from addresses; "archive"; "of=", like dd;
    "unknown", if the words do not tell. Flags that match `recursive` make it change whole folders.
    """

    operands: str
    flags: str = ""
    recursive: str = ""


_COPYING_FLAGS = r"-[finpuv]+|--(force|interactive|no-clobber|preserve(=.*)?|update|verbose)"
_PACKING = Writing("packed", r"-[dkfvqc1-9]+|--(keep|force|decompress|verbose|quiet)")
_UNKNOWN = Writing("unknown")
_DOWNLOADING_FLAGS = (
    r"-[fsSLgqvkO#]+|-[oOPHXdAubD]|-[nq]+[vcO]?|--(fail|silent|show-error|location|output(-dir)?"
    r"|create-dirs|remote-name|request|header|data|compressed|max-time|retry|output-document"
    r"|directory-prefix|quiet|no-verbose|timeout|tries|insecure|version)(=.*)?"
)

# Program -> how it writes. Neither readers nor programs with unknown habits are listed.
WRITING_PROGRAMS = {
    "touch": Writing("all", r"-[acmfh]+|-[rdt]|--(no-create|date|reference|time)(=.*)?"),
    "mkdir": Writing("all", r"-[pvm]+|--(parents|verbose|mode)(=.*)?"),
    "mkfifo": Writing("all", "-m"),
    "mknod": Writing("all", "-m"),
    "rmdir": Writing("all", r"-[pv]+|--(parents|verbose|ignore-fail-on-non-empty)"),
    "rm": Writing(
        "all", r"-[fidvIrR]+|--(force|recursive|verbose|dir)", r"-[^\WrR]*+[rR]\w*|--r.*"
    ),
    "unlink": Writing("all"),
    "link": Writing("all"),
    "shred": Writing("all", r"-[fuvzn]+\d*"),
    "truncate": Writing("all", r"-[cos].*|--(size|no-create)(=.*)?"),
    "tee": Writing("all", r"-[aip]+|--append"),
    "sponge": Writing("all", "-a"),
    "chmod": Writing("all", r"-[vcfRrwxXst]+|--recursive", r"-[^\WR]*+R\w*|--r.*"),
    "chown": Writing("all", r"-[vcfhR]+|--recursive", r"-[^\WR]*+R\w*|--r.*"),
    "chgrp": Writing("all", r"-[vcfhR]+|--recursive", r"-[^\WR]*+R\w*|--r.*"),
    "chattr": Writing("all", r"-[vfR]+|[-+=]\w+", r"-[^\WR]*+R\w*"),
    "setfacl": Writing("all", r"-[mxb]"),
    "setfattr": Writing("all", r"-[nvx]"),
    **dict.fromkeys(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz"), _PACKING),
    "zip": Writing("all", r"-[qrj0-9]+"),
    "cp": Writing("last", _COPYING_FLAGS),
    "install": Writing("moved", r"-[cCpvDdm]+|-[og]|--(directory|mode|verbose)(=.*)?"),
    "mv": Writing("moved", r"-[finuv]+|--(force|interactive|no-clobber|update|verbose)", ".*"),
    "ln": Writing("moved", r"-[sfnvir]+|--(symbolic|force|verbose|relative)"),
    "dd": Writing("of="),
    "curl": Writing("downloads", _DOWNLOADING_FLAGS),
    "wget": Writing("downloads", _DOWNLOADING_FLAGS),
    "tar": Writing("archive"),
    "bsdtar": Writing("archive"),
    **dict.fromkeys(
        split_word_set("rename unzip 7z cpio pax patch split csplit rsync scp sftp"), _UNKNOWN
    ),
    **dict.fromkeys(("git apply", "git am", "git checkout-index"), _UNKNOWN),
    "git mv": Writing("moved", "-[fknv]+", ".*"),
    "git rm": Writing("all", r"-[fnqr]+|--cached", r"-[^\Wr]*+r\w*"),
    "git restore": Writing("all", r"-[SWq]+|-s|--(staged|worktree|source)(=.*)?"),
    "git checkout": Writing("all", r"-[bBqf]+|--(track|detach|quiet)|--"),
    "git clone": Writing("all", r"-[qvn]+|-b|--(depth|branch|quiet|single-branch)(=.*)?"),
}


class Approval(Struct, frozen=True):
    """The arguments that approving a program covers, because they make it run nothing else.

    `flags` is matched with each flag, `operands` with all other words joined with blanks.
    """

    flags: str = ""
    operands: str = ".*"


_CARGO = Approval(
    r"-[vqr]+|-p|-j\d*|-[DWA]|--|--(release|all|workspace|libs?|bins?|tests?|examples?|benches"
    r"|all-targets|all-features|no-default-features|features|package|locked|offline|frozen|quiet"
    r"|verbose|no-run|no-fail-fast|doc|nocapture|exact|ignored|include-ignored|test-threads"
    r"|show-output|check)(=[\w,/.-]*)?",
    r"[\w,:. /-]*",
)
_LINT = Approval(r"-[qv]+|--(check|diff|fix|no-fix|quiet|verbose|no-cache|statistics)")
_REMOTE = r"((origin|upstream)( \w[\w./@-]*)*)?"
# Program or module, with its subcommand -> what one approval covers. Those that build, test or
# commit run code of the project, as the approved command did. For a program not listed, an
# approval covers only the same command.
APPROVALS = {
    **dict.fromkeys(("touch", "mkdir", "cp"), Approval(".*")),
    "pytest": Approval(
        r"-[qvxsl]+|-r\w+|-[kmn]|-n\d+|--(lf|ff|nf|sw|co|collect-only|last-failed|failed-first"
        r"|exitfirst|quiet|verbose|no-header|no-summary|maxfail=\d+|tb=\w+|durations=\d+|color=\w+)"
    ),
    "unittest": Approval(r"-[vqfbc]+"),
    "mypy": Approval(r"-v|--(strict|pretty|ignore-missing-imports|no-error-summary)"),
    "pyright": Approval(r"--outputjson"),
    **dict.fromkeys(("ruff check", "ruff format", "black", "isort"), _LINT),
    "flake8": Approval(r"--max-line-length=\d+"),
    **{f"cargo {name}": _CARGO for name in ("build", "check", "test", "clippy", "fmt")},
    "go build": Approval(r"-(v|race|trimpath)", r"\.[\w./ -]*"),
    "go fmt": Approval("", r"\.[\w./ -]*"),
    "go vet": Approval("", r"\.[\w./ -]*"),
    "go test": Approval(
        r"-(v|race|short|failfast|cover|json|benchmem|(run|bench|count|timeout|cpu)=\S*)",
        r"(\.[\w./ -]*)?",
    ),
    "git add": Approval(r"-[AunvfN]+|--(all|update|force|verbose|dry-run|intent-to-add)|--"),
    "git commit": Approval(r"-[aqvsm]+|--(all|quiet|signoff|allow-empty|message(=.*)?)"),
    "git push": Approval(
        r"-[uqv]+|--(set-upstream|quiet|verbose|dry-run|tags|follow-tags|porcelain)", _REMOTE
    ),
    "git fetch": Approval(r"-[pqvt]+|--(all|prune|tags|quiet|verbose)", _REMOTE),
    **{f"git {name}": Approval("-.*") for name in sorted(GIT_READING_COMMANDS)},
}
# The modules among them that `python -m` runs.
APPROVED_MODULES = split_word_set("pytest unittest mypy ruff black isort flake8")
# Programs that run another one in the project's environment, with their subcommand.
APPROVED_RUNNERS = {("poetry", "run"), ("pdm", "run"), ("uv", "run"), ("pipenv", "run")}

# Variables that do not change which program runs, so a command that sets them is still allowed by
# its rule.
SAFE_VARIABLE = compile_later(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|TERM|COLUMNS|LINES|NODE_ENV|CI|DEBUG"
    r"|VERBOSE|RUST_BACKTRACE|RUST_LOG|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8"
    r"|PYTHONHASHSEED|GOOS|GOARCH|CGO_ENABLED|SOURCE_DATE_EPOCH|MUDROOM_LONG"
)
