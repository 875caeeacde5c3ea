"""An identity provider on a real socket: a discovery document, a key set, and tokens that are really signed."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

__all__ = ["Provider", "running_provider"]

AUDIENCE = "kindcast"
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


class Provider:
    """What it answers can be changed while it runs."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.keys: list[dict[str, Any]] = []
        self.discovery: dict[str, Any] = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        self.answers: dict[str, bytes] = {}
        """In place of the right ones, by path."""
        self.status = 200
        self.fetched: list[str] = []
        self.publish("rsa", RSA_KEY)

    def publish(self, kid: str | None, key: Any, **more: Any) -> None:
        """A key in the key set."""
        public = key.public_key()
        if isinstance(key, rsa.RSAPrivateKey):
            told = RSAAlgorithm.to_jwk(public, as_dict=True)
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            told = ECAlgorithm.to_jwk(public, as_dict=True)
        else:
            told = OKPAlgorithm.to_jwk(public, as_dict=True)
        self.keys.append(dict(told) | ({} if kid is None else {"kid": kid}) | {"use": "sig"} | more)

    def token(self, *, key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
        """Signed; a claim that is None is left out."""
        now = time.time()
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": int(now), "exp": int(now) + 300}
        body = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(body, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})

    def answer(self, path: str) -> bytes:
        """What is at a path."""
        self.fetched.append(path)
        if path in self.answers:
            return self.answers[path]
        return json.dumps({"keys": self.keys} if path == "/keys" else self.discovery).encode()


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Listens on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = provider.answer(self.path)
            self.send_response(provider.status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
