"""Values of the option `worker` with which a promise is tested."""

from __future__ import annotations

import os

import pytest

NEEDS_RAY = [
    pytest.mark.fleet,
    pytest.mark.skipif(
        not os.environ.get("RAY_ADDRESS"), reason="needs a Ray cluster: run `make fleet`"
    ),
]
RAY = pytest.param("ray:1", marks=NEEDS_RAY)
WORKERS = ["local", "process:1", RAY]
