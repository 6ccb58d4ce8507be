"""The output of a batch on a full disk, and its order."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from mudroom import MudroomError
from mudroom._cli.actions.batch import name_output
from mudroom._cli.batches.results import sort_results

_WRITE_UNTIL_FULL = """
import resource
import sys
from collections import Counter
from pathlib import Path

from mudroom._cli.batches.results import ResultFile

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
with ResultFile(Path(sys.argv[1])) as file:
    if sys.argv[2:]:
        file.publish(Counter())
    for _ in range(4):
        file.add(b"x" * 299 + b"\\n")
    file.publish(Counter())
"""


@pytest.mark.parametrize("is_published", [True, False])
def test_an_output_without_space_has_whole_lines_only_and_the_error_names_it(
    tmp_path: Path, *, is_published: bool
) -> None:
    path = tmp_path / "out.jsonl"
    words = [str(path), *(["published"] if is_published else [])]
    process = subprocess.run(
        [sys.executable, "-c", _WRITE_UNTIL_FULL, *words], capture_output=True, check=False
    )
    if is_published:
        assert path.read_bytes() == (b"x" * 299 + b"\n") * 3
    else:
        assert list(tmp_path.iterdir()) == []
    last = process.stderr.decode().splitlines()[-1]
    assert last.startswith(f"OSError: [Errno {errno.EFBIG}]")
    assert last.endswith(f"'{path}'")


def test_only_errors_of_the_output_are_named_so(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(MudroomError, match="the output cannot be written: No space"):
        with name_output(output):
            raise OSError(errno.ENOSPC, "No space left on device", str(output))
    for words in ((), (str(tmp_path / "in.jsonl"),)):
        with pytest.raises(OSError, match="Too many open files"), name_output(output):
            raise OSError(errno.EMFILE, "Too many open files", *words)


def test_sorting_does_not_hold_the_texts(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    count = 10_000
    text = "x" * 400
    with path.open("w") as file:
        for number in reversed(range(count)):
            file.write(f'{{"custom_id":"id-{number}","text":"{text}"}}\n')
        file.write('{"custom_id":"not in the input"}\n')
    tracemalloc.start()
    sort_results(path, (f"id-{number}" for number in range(-5, count)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ids = [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]
    assert ids == [f"id-{number}" for number in range(count)]
    assert peak < 200 * count


def test_sorting_keeps_the_last_of_several_results_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    lines = [f'{{"custom_id":"{name}"}}' for name in ("b", "a", "b", "c")]
    lines[2] = '{"custom_id":"b","run":"9"}'
    path.write_text("".join(f"{line}\n" for line in lines))
    sort_results(path, iter(("a", "b", "c")))
    assert path.read_text().splitlines() == [lines[1], lines[2], lines[3]]
