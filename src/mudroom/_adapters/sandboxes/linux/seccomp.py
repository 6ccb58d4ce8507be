"""The seccomp filter for commands: a BPF program that refuses system calls."""

from __future__ import annotations

import platform
import struct

# Instructions of the BPF machine.
_LOAD = 0x20
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_IF_ANY_BIT = 0x45
_RETURN = 0x06

# Offsets in a call's data.
_NUMBER = 0
_ARCH = 4
_FIRST_ARGUMENT = 16
_SECOND_ARGUMENT = 24

# Results.
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_EPERM = 1
_ENOSYS = 38

_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_TIME_NAMESPACE = 0x80
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: put keystrokes into a terminal
_X32_CALLS = 0x40000000

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # number in a filter's data, by machine

REFUSED_CALLS: dict[str, tuple[int, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
}
"""Calls refused whatever their arguments: name -> number on x86_64 and on aarch64."""

HIDDEN_CALLS = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
}
"""Calls that fail as unknown, so that programs use older calls with checkable arguments."""

_X86_ONLY = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}
_CHECKED_CALLS = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
}


def build_filter(*, allow_internet: bool, machine: str = "") -> bytes:
    """Build the filter as an array of `struct sock_filter`.

    Arguments:
        allow_internet: allow IPv4 and IPv6 sockets. All other families are always refused.
        machine: a key of AUDIT_ARCH; "" means this machine.
    """
    machine = machine or platform.machine()
    arch = AUDIT_ARCH[machine]
    column = 0 if machine == "x86_64" else 1
    code = [
        _make_step(_LOAD, _ARCH),
        _make_step(_IF_EQUAL, arch, 1, 0),
        _make_step(_RETURN, _KILL),
        _make_step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_make_step(_IF_AT_LEAST, _X32_CALLS, 0, 1), _refuse(_ENOSYS)]
        for number in _X86_ONLY.values():
            code += [_make_step(_IF_EQUAL, number, 0, 1), _refuse(_EPERM)]
    for numbers in REFUSED_CALLS.values():
        code += [_make_step(_IF_EQUAL, numbers[column], 0, 1), _refuse(_EPERM)]
    for numbers in HIDDEN_CALLS.values():
        code += [_make_step(_IF_EQUAL, numbers[column], 0, 1), _refuse(_ENOSYS)]
    for name, numbers in _CHECKED_CALLS.items():
        check = _check_arguments(name, allow_internet=allow_internet)
        code += [_make_step(_IF_EQUAL, numbers[column], 0, len(check)), *check]
    return b"".join([*code, _make_step(_RETURN, _ALLOW)])


def _check_arguments(name: str, *, allow_internet: bool) -> list[bytes]:
    """List the steps to judge a call by its arguments; the last step returns."""
    allow = _make_step(_RETURN, _ALLOW)
    refuse = _refuse(_EPERM)
    if name == "socket":
        code = [_make_step(_LOAD, _FIRST_ARGUMENT)]
        for family in (_AF_INET, _AF_INET6) if allow_internet else ():
            code += [_make_step(_IF_EQUAL, family, 0, 1), allow]
        return [*code, refuse]
    if name == "socketpair":
        return [
            _make_step(_LOAD, _FIRST_ARGUMENT),
            _make_step(_IF_EQUAL, _AF_UNIX, 0, 1),
            allow,
            refuse,
        ]
    if name == "ioctl":
        code = [_make_step(_LOAD, _SECOND_ARGUMENT)]
        for request in _TERMINAL_INPUT:
            code += [_make_step(_IF_EQUAL, request, 0, 1), refuse]
        return [*code, allow]
    flags = _NAMESPACES | (_NEW_TIME_NAMESPACE if name == "unshare" else 0)
    return [_make_step(_LOAD, _FIRST_ARGUMENT), _make_step(_IF_ANY_BIT, flags, 0, 1), refuse, allow]


def _refuse(error: int) -> bytes:
    return _make_step(_RETURN, _ERRNO | error)


def _make_step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Make an instruction. The last two arguments are numbers of steps to skip."""
    return struct.pack("=HBBI", operation, if_true, if_false, value)
