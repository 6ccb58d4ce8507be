"""Encryption of one connection with TLS: bytes in, bytes out.

asyncio's own keeps a buffer of 256 KiB for each connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

_MAX_RECORD = 16 * 1024
"""Bytes of the content of one TLS record."""


class Encryption:
    """TLS of a client over a transport, or over the encryption of the connection to a proxy.

    Arguments:
        host: name or address that the certificate of the server must have.
        send: sends encrypted bytes.
        below: the encryption of the connection to the proxy, if it has one.

    Attributes:
        is_ready: true after the handshake: content can be sent.
        is_ended: true if the server has ended the encryption. No more content arrives.
        error: what is wrong with the server's bytes. No more content arrives.
    """

    def __init__(
        self,
        tls: ssl.SSLContext,
        host: str,
        send: Callable[[bytes], object],
        below: Encryption | None = None,
    ) -> None:
        self.is_ready = False
        self.is_ended = False
        self.error: ssl.SSLError | None = None
        self._send = send
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def start(self) -> None:
        """Send the first message of the handshake. Raises ssl.SSLError."""
        self._continue_handshake()

    def send(self, content: bytes) -> None:
        """Encrypt content and send it. Raises ssl.SSLError."""
        self._tls.write(content)
        self._send(self._outgoing.read())

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decrypt bytes of the server, and return the content that is complete.

        Sets `error` if they cannot be decrypted, after the content before them was returned.
        """
        if self._below is not None:
            data = self._below.receive(data)
            self.is_ended = self._below.is_ended
            self.error = self._below.error
        self._incoming.write(data)
        if not self.is_ready:
            try:
                self._continue_handshake()
            except ssl.SSLError as error:
                self.error = error
        return self._read_content() if self.is_ready else b""

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
            self.is_ready = True
        except ssl.SSLWantReadError:
            pass
        finally:
            self._send_answers()

    def _read_content(self) -> bytes:
        parts: list[bytes] = []
        tls = self._tls
        try:
            # A read that finds no whole record raises an exception, which takes longer than a read.
            while self._incoming.pending or tls.pending():
                part = tls.read(_MAX_RECORD)
                if not part:
                    self.is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        finally:
            self._send_answers()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _send_answers(self) -> None:
        """Send what the protocol itself has to say: the handshake, new keys, an alert."""
        if self._outgoing.pending:
            self._send(self._outgoing.read())
