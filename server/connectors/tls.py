"""TLS to a host by its name, wherever the connection was made to."""

import ssl
from typing import Any

__all__ = ["tls_for"]


class _NamedContext(ssl.SSLContext):
    """A client's context that expects the certificate of `name`."""

    name: str

    def wrap_bio(self, incoming: Any, outgoing: Any, *_: Any, **more: Any) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, **more | {"server_hostname": self.name})

    def wrap_socket(self, sock: Any, *_: Any, **more: Any) -> ssl.SSLSocket:
        """After the handshake; without it the socket is closed."""
        wrapped = super().wrap_socket(sock, **more | {"server_hostname": self.name})
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def tls_for(host: str) -> ssl.SSLContext:
    """A context that trusts the system's authorities and expects the certificate of this host."""
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.name = host
    return context
