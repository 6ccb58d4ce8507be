"""Results of the seccomp filter on each machine, computed step by step."""

from __future__ import annotations

import struct

import pytest

from mudroom._adapters.sandboxes.linux.seccomp import (
    AUDIT_ARCH,
    HIDDEN_CALLS,
    REFUSED_CALLS,
    build_filter,
)

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
NAMES = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "read": (0, 63),
}


Code = list[tuple[int, ...]]


def build_steps(machine: str, *, allow_internet: bool = True) -> Code:
    code = build_filter(allow_internet=allow_internet, machine=machine)
    return list(struct.iter_unpack("=HBBI", code))


def run_filter(steps: Code, number: int, arch: int, *arguments: int) -> int:
    """Return the result of a filter for a call; -1 if the kernel would refuse the filter."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    at = register = 0
    while at < len(steps):
        operation, true, false, value = steps[at]
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            register = struct.unpack_from("=I", data, value)[0]
        else:
            held = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[
                operation
            ]
            at += true if held else false
    return -1


@pytest.fixture(params=AUDIT_ARCH)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def ask_filter(machine: str, name: str, *arguments: int, internet: bool = False) -> int:
    number = {**REFUSED_CALLS, **HIDDEN_CALLS, **NAMES}[name][0 if machine == "x86_64" else 1]
    steps = build_steps(machine, allow_internet=internet)
    return run_filter(steps, number, AUDIT_ARCH[machine], *arguments)


def test_ordinary_calls_pass(machine: str) -> None:
    assert ask_filter(machine, "read") == ALLOW


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused_calls_are_refused(machine: str, name: str) -> None:
    assert ask_filter(machine, name) == EPERM


@pytest.mark.parametrize("name", HIDDEN_CALLS)
def test_hidden_calls_seem_not_to_exist(machine: str, name: str) -> None:
    assert ask_filter(machine, name) == ENOSYS


def test_system_calls_of_another_machine_kill_the_process(machine: str) -> None:
    assert run_filter(build_steps(machine), 0, 0x40000003) == KILL


def test_x32_system_calls_are_refused() -> None:
    steps = build_steps("x86_64")
    assert run_filter(steps, 0x40000000 | 41, AUDIT_ARCH["x86_64"], 2) == ENOSYS


@pytest.mark.parametrize("family", range(50))
def test_only_internet_sockets_can_be_allowed(machine: str, family: int) -> None:
    assert ask_filter(machine, "socket", family, internet=True) == (
        ALLOW if family in (2, 10) else EPERM
    )
    assert ask_filter(machine, "socket", family) == EPERM
    assert ask_filter(machine, "socketpair", family) == (ALLOW if family == 1 else EPERM)


def test_only_the_low_32_bits_of_a_family_count(machine: str) -> None:
    """The kernel reads the family as a 32-bit int."""
    assert ask_filter(machine, "socket", (7 << 32) | 1, internet=True) == EPERM


@pytest.mark.parametrize(
    "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
)
def test_no_namespace_can_be_created(machine: str, flag: int) -> None:
    for name in ("clone", "unshare"):
        assert ask_filter(machine, name, flag | 17 if name == "clone" else flag) == EPERM
    assert ask_filter(machine, "unshare", 0x80) == EPERM
    assert ask_filter(machine, "clone", 0x3D0F00) == ALLOW, "a thread"


def test_no_keystrokes_into_a_terminal(machine: str) -> None:
    for number in (0x5412, 0x541C, 0x100005412):
        assert ask_filter(machine, "ioctl", 0, number) == EPERM
    assert ask_filter(machine, "ioctl", 0, 0x5401) == ALLOW


def test_the_filter_is_short(machine: str) -> None:
    assert len(build_steps(machine)) < 200
