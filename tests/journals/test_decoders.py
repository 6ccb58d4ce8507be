"""Decoders of records: threads that need the same one at the same time all get a whole one."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import threading

import msgspec

from mudroom._core.json_values import get_decoder

is_inside = threading.Event()
may_go_on = threading.Event()


class SlowNames:
    @property
    def Number(self):
        if threading.current_thread().name == "first":
            is_inside.set()
            may_go_on.wait(20)
        return int


slow = SlowNames()


class Part(msgspec.Struct):
    number: "slow.Number"


class Record(msgspec.Struct):
    name: str
    part: Part


numbers = []


def decode():
    record = get_decoder(Record).decode(b'{"name": "a", "part": {"number": 1}}')
    numbers.append(record.part.number)


first = threading.Thread(target=decode, name="first")
first.start()
is_inside.wait()
second = threading.Thread(target=decode)
second.start()
second.join(0.2)
may_go_on.set()
first.join()
second.join()
print(numbers)
"""


def test_two_threads_that_make_one_decoder_do_not_crash_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RACE], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "[1, 1]\n"), ended.stderr
