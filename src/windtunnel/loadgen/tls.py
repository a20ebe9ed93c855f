"""TLS of one connection, without its socket: encrypted bytes in and out, plain bytes in and out.

Imported only where an https address is met: `ssl` costs twenty milliseconds of a start.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator

_READ_BYTES = 1 << 16


class TlsError(Exception):
    """The peers do not agree, or what came is no TLS; the text is the library's."""


def tls_context(*, insecure: bool) -> ssl.SSLContext:
    """The system's certificate authorities, or no check at all."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TlsSession:
    """Begins with the handshake; `outgoing` holds what is to be sent at any time."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.established = False
        self.ended = False
        """The peer has said goodbye."""

    def outgoing(self) -> bytes:
        """Encrypted bytes that are to be sent."""
        return self._outgoing.read()

    def receive(self, data: bytes) -> None:
        """Take encrypted bytes."""
        self._incoming.write(data)

    def continue_handshake(self) -> bool:
        """Go on as far as bytes have come; True once the session stands. Raises TlsError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(str(getattr(error, "verify_message", None) or error.reason or error)) from error
        self.established = True
        return True

    def encrypt(self, data: bytes) -> None:
        """Have plain bytes sent."""
        self._tls.write(data)

    def decrypted(self) -> Iterator[bytes]:
        """The plain bytes that have come. Raises TlsError."""
        try:
            while data := self._tls.read(_READ_BYTES):
                yield data
            self.ended = True
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise TlsError(f"TLS: {error.reason or error}") from error
