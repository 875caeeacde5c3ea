"""The trusted certificates of this machine are read once in each process of the tests. Otherwise each client of httpx
would read them, also for a server without TLS, which takes longer than most requests."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from httpx._transports import default

__all__ = ["trusted_once"]


@contextmanager
def trusted_once() -> Iterator[None]:
    """Clients share a context of TLS, unless they name other certificates. There is one for each file and folder of
    certificates that the variables name."""
    create = default.create_ssl_context

    @cache
    def shared(trust_env: bool, *named: str | None) -> ssl.SSLContext:
        return create(trust_env=trust_env)

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return create(verify=verify, cert=cert, trust_env=trust_env)
        return shared(trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", context)
        yield
