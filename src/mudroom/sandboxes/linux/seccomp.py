"""The seccomp filter: the system calls a command is refused, as a BPF program built here, byte by byte."""

from __future__ import annotations

import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
_ANY_NAMESPACE = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_TIME = 0x80
_UNIX, _INET, _INET6 = 1, 2, 10
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: put keystrokes into a terminal
_X32 = 0x40000000

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine, as `platform` names it -> its number for the filter."""

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
"""Refused whatever their arguments: name -> number on x86_64 and on aarch64."""

HIDDEN_CALLS = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
}
"""Said not to exist, so that programs take the older way, which can be judged by its arguments."""

_X86_ONLY = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}
_JUDGED = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "unshare": (272, 97),
    "ioctl": (16, 29),
}


def build_filter(*, allow_internet: bool, machine: str = "") -> bytes:
    """The filter, as an array of `struct sock_filter`.

    Arguments:
        internet: whether IPv4 and IPv6 sockets may be made; all other families never.
        machine: a key of MACHINES; "" is this one.

    Raises KeyError for a machine whose system call numbers are not known here.
    """
    machine = machine or platform.machine()
    arch, column = AUDIT_ARCH[machine], 0 if machine == "x86_64" else 1
    code = [_step(_LOAD, _ARCH), *_unless(_EQUAL, arch, _KILL), _step(_LOAD, _NUMBER)]
    if machine == "x86_64":
        code += [_step(_AT_LEAST, _X32, 0, 1), _refuse(_ENOSYS)]
        for number in _X86_ONLY.values():
            code += [_step(_EQUAL, number, 0, 1), _refuse(_EPERM)]
    for numbers in REFUSED_CALLS.values():
        code += [_step(_EQUAL, numbers[column], 0, 1), _refuse(_EPERM)]
    for numbers in HIDDEN_CALLS.values():
        code += [_step(_EQUAL, numbers[column], 0, 1), _refuse(_ENOSYS)]
    for name, numbers in _JUDGED.items():
        body = _judge(name, allow_internet)
        code += [_step(_EQUAL, numbers[column], 0, len(body)), *body]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _judge(name: str, internet: bool) -> list[bytes]:
    """What decides by an argument; it always ends in an answer, so that nothing runs on behind it."""
    allow, refuse = _step(_RETURN, _ALLOW), _refuse(_EPERM)
    if name == "socket":
        families = (_INET, _INET6) if internet else ()
        return [
            _step(_LOAD, _FIRST),
            *(part for f in families for part in (_step(_EQUAL, f, 0, 1), allow)),
            refuse,
        ]
    if name == "socketpair":
        return [_step(_LOAD, _FIRST), _step(_EQUAL, _UNIX, 0, 1), allow, refuse]
    if name == "ioctl":
        return [
            _step(_LOAD, _SECOND),
            *(part for n in _TERMINAL_INPUT for part in (_step(_EQUAL, n, 0, 1), refuse)),
            allow,
        ]
    mask = _ANY_NAMESPACE | (_NEW_TIME if name == "unshare" else 0)
    return [_step(_LOAD, _FIRST), _step(_ANY_BIT, mask, 0, 1), refuse, allow]


def _unless(test: int, value: int, verdict: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(_RETURN, verdict)]


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _step(operation: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, true, false, value)
