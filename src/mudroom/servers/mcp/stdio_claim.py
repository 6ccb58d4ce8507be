"""Claim of stdin and stdout: nothing but messages goes through them while a server works."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct


class Pipes(Struct, frozen=True):
    """Descriptors of the pipes from and to the host."""

    input: int
    output: int


@contextmanager
def claim_standard_streams() -> Generator[Pipes]:
    """Keep stdin and stdout for messages: others read nothing, and write to stderr.

    Descriptors are not closed: a thread may still wait for one.
    """
    pipes = Pipes(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield pipes
    finally:
        os.dup2(pipes.input, 0)
        os.dup2(pipes.output, 1)
