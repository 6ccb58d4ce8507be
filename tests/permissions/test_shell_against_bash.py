"""Random commands: bash runs no command and passes no word that the parser does not read.

The only programs are two shell functions that record their arguments. `make test` tries a few
hundred commands, MUDROOM_LONG=1 a hundred thousand, also with characters changed at random;
MUDROOM_SEED changes them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom.permissions.shell_parser import parse_command

IS_LONG = bool(os.environ.get("MUDROOM_LONG"))
CASES = 100_000 if IS_LONG else 400
SEED = int(os.environ.get("MUDROOM_SEED", "5"))
BATCH = 100
BASH = shutil.which("bash") or ""
WORDS = r"""
a  b.c  'b c'  "d"  e\ f  $'g\tx'  -x  --  {}  {fd}  2  0  =  k=1  a#b  !  a'b'"c"
{a,b}  [  ]  -  \;  a:b  "a\"b"  ''  }  {  if  $(q 1)  `q 2`  "$(q 4)"  "`q 5`"
x$(q 6)y  $x  ${x:-u}  "$x"  $((1+2))  ${x%a}  ``
"""
REDIRECTS = r"""
>f  > f  >>f  2>f  <f  <&-  >&-  2>&-  0<&-  2>&1  >&2  <&0  &>f  &>>f  >|f  >&f  <<<w
<<<'x y'  >f$(q s)  >$(q s)  <$(q s)  {fd}>f  {fd}<&-  1<>f  3<f  3>&1  3>&1-  <&$x
12>f  >&-2  2>& -a
"""
"""Words and redirects, separated by two blanks."""
FRAMES = [
    "{}; {}",
    "{} && {}",
    "{} || {}",
    "{} | {}",
    "{}\n{}",
    "({}); {}",
    "{{ {}; }}; {}",
    "! {}; {}",
    "if {}; then {}; fi",
    "for i in a; do {}; {}; done",
    "case a in a) {};; *) {};; esac",
    "f() {{ {}; }}; f; {}",
    "{{ {}; }} > f; {}",
    "{} <<E\nx\nE\n{}",
    "{} <<'E' a\n$(q z)\nE\n{}",
    "{} <<-E > f\n\tx\n\tE\n{}",
    "{} <<E && {}\nx\nE",
    'q "$({})"; {}',
    "[ -n a ] && {}; {}",
    "{} #c\n{}",
]
NOISE = ["\\\n", "\\", *"'\"#$<>{}()-0;\n` =*"]
RECORDER = r"""
p() { local t; printf -v t '%s\001' p "$@"; printf '%s\002' "$t" >> "$LOG"; }
q() { local t; printf -v t '%s\001' q "$@"; printf '%s\002' "$t" >> "$LOG"; }
while IFS= read -r -d '' -u 8 command; do
  printf '\003' >> "$LOG"
  : > f
  ( ulimit -t 2; eval "$command" ) 8<&- < /dev/null > /dev/null 2>&1
done
exit 0
"""

pytestmark = pytest.mark.skipif(not BASH, reason="needs bash")


def split_pieces(text: str) -> list[str]:
    return re.split(r"  |\n", text.strip())


def make_simple(chance: random.Random) -> str:
    redirects = split_pieces(REDIRECTS)
    parts = [chance.choice(["v=1", "v=$(q v)", *redirects])] if chance.random() < 0.25 else []
    parts.append(chance.choice(["p", "q", "'p'", "\\q"]))
    for _ in range(chance.choice((0, 1, 2, 3, 4))):
        parts.append(chance.choice(split_pieces(WORDS) if chance.random() < 0.6 else redirects))
    gaps = [" ", " ", "\t", " \\\n", "\\\n", "\\\n "]
    return "".join(part + chance.choice(gaps) for part in parts[:-1]) + parts[-1]


def make_command(chance: random.Random) -> str:
    text = make_simple(chance)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        text = chance.choice(FRAMES).format(text, make_simple(chance))
    for _ in range(chance.choice((0, 0, 1, 2)) if IS_LONG else 0):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(NOISE) + text[at + chance.choice((0, 0, 1)) :]
    return text


def run_in_bash(commands: list[str], folder: Path) -> list[list[list[str]]]:
    """Return the words of each function call that each command makes."""
    log = folder / "log"
    log.write_bytes(b"")
    source = folder / "commands"
    source.write_bytes(b"".join(command.encode() + b"\0" for command in commands))
    subprocess.run(
        [BASH, "-c", f"exec 8< ../commands; {RECORDER}"],
        cwd=folder / "work",
        env={"LOG": str(log), "PATH": "/nonexistent"},
        check=True,
        timeout=100,
    )
    parts = log.read_bytes().decode("utf-8", "replace").split("\3")[1:]
    return [[call.split("\1")[:-1] for call in part.split("\2")[:-1]] for part in parts]


def fits(call: list[str], words: list[str | None]) -> bool:
    """Return whether these words may expand to the call; None may become any words."""
    if not words:
        return not call
    if words[0] is None:
        return any(fits(call[start:], words[1:]) for start in range(len(call) + 1))
    return bool(call) and call[0] == words[0] and fits(call[1:], words[1:])


def test_bash_runs_only_what_the_parser_reads(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    chance = random.Random(SEED)
    count = 0
    for _ in range(CASES // BATCH):
        commands = [make_command(chance) for _ in range(BATCH)]
        for command, calls in zip(commands, run_in_bash(commands, tmp_path), strict=True):
            script = parse_command(command)
            if script.problems:
                continue
            read = [[word.value for word in part.words] for part in script.commands]
            count += len(calls)
            for call in calls:
                assert any(fits(call, words) for words in read), (command, call, read)
    assert count > CASES / 10
