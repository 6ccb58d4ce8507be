"""Addresses of servers: what is shown, and what the error of a wrong one says."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from mudroom.driving.listening import (
    Listener,
    ListenOptions,
    make_listen_error,
    make_tls_context,
)
from mudroom.errors import UsageError


def test_the_address_is_one_that_clients_can_use() -> None:
    cases = {
        "127.0.0.1": "http://127.0.0.1:8700",
        "localhost": "http://127.0.0.1:8700",
        "0.0.0.0": "http://127.0.0.1:8700",
        "::": "http://[::1]:8700",
        "::1": "http://[::1]:8700",
    }
    for host, url in cases.items():
        options = ListenOptions(host=host, is_behind_proxy=True, host_names=("mud.example",))
        assert Listener(options).address.url == url


def test_the_error_of_a_wrong_address_names_it_once() -> None:
    remedy = "Choose another address with --listen."
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            Listener(ListenOptions(port=port)).open_socket()
    reason = "the server cannot listen: Address already in use"
    assert str(caught.value) == f"{reason} (127.0.0.1:{port}). {remedy}"

    text = "Name or service not known (while attempting to bind on address ('none', 1))"
    error = make_listen_error(ListenOptions(host="none", port=1), OSError(-2, text))
    reason = "the server cannot listen: Name or service not known"
    assert str(error) == f"{reason} (none:1). {remedy}"


def test_a_missing_certificate_is_told_without_system_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "none.pem")
    with pytest.raises(UsageError) as caught:
        make_tls_context(ListenOptions(tls_cert=path, tls_key=path))
    assert caught.value.message == "the certificate cannot be used: No such file or directory"
