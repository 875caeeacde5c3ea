"""Tokens of an identity provider (OpenID Connect), accepted besides keys.

    Authorization: Bearer <JWT> ──▶ IdentityProvider.identify ──▶ Identity: subject, roles, tenant, until when
                                          │ signature, iss, aud, exp, nbf, sub      else TokenRefused
                                          └ keys of the issuer, from its discovery document, remembered

PyJWT verifies tokens, with fixed options: asymmetric algorithms only, and the keys of one issuer. Keys are fetched at
most every `FETCH_SECONDS`, whatever clients send, and never from a URL in a token.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ssl import SSLContext, create_default_context
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import msgspec

from kindcast.server.errors import ServerError
from kindcast.server.security.keys import Role
from kindcast.server.settings import Settings, is_loopback

if TYPE_CHECKING:
    import jwt  # takes 30 ms with cryptography: imported when the first token comes

__all__ = ["Identity", "IdentityProvider", "ProviderUnavailable", "TokenRefused"]

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The algorithms of each type of key. None is symmetric, because a public key must not work as a secret for signing."""

MAX_TOKEN_CHARACTERS = 16 << 10
MAX_DOCUMENT_BYTES = 256 << 10
MAX_KEYS = 100
MAX_SUBJECT = 200
FETCH_SECONDS = 10.0
"""The shortest interval between two attempts to fetch the keys, whatever clients send."""
FETCH_TIMEOUT_SECONDS = 10.0
FRESH_SECONDS = 600.0
"""The keys are fetched again after this time, while requests still use the old ones."""
STALE_SECONDS = 86_400.0
"""How long the keys are used while the issuer does not answer."""
DISCOVERY = "/.well-known/openid-configuration"

_log = logging.getLogger("kindcast.identity")


class TokenRefused(ServerError):
    """The token is not one of the issuer's for this server, or its time is over."""


class ProviderUnavailable(ServerError):
    """The issuer's keys are not known, since it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The verified content of a token. `tenant` is None if it names none."""

    subject: str
    roles: frozenset[Role]
    of_all: bool
    tenant: str | None
    expires_at: float


class IdentityProvider:
    """The identity provider of the settings. For one event loop."""

    def __init__(self, settings: Settings) -> None:
        """Does not fetch anything yet. Raises OSError if the file of certificate authorities cannot be read."""
        assert settings.oidc_issuer is not None
        assert settings.oidc_audience is not None
        self.issuer = settings.oidc_issuer
        self._settings = settings
        verify: SSLContext | bool = True
        if settings.oidc_ca is not None:
            verify = create_default_context(cafile=settings.oidc_ca)
        here = is_loopback(urlsplit(self.issuer).hostname or "")
        self.discovery = self.issuer.rstrip("/") + DISCOVERY
        self._http = httpx.AsyncClient(verify=verify, follow_redirects=False, trust_env=not here)
        self._keys: tuple[Mapping[str, Any], ...] = ()
        self._verifiers: dict[tuple[int, str], jwt.PyJWK] = {}
        self._fetched_at = -STALE_SECONDS
        self._tried_at = -FETCH_SECONDS
        self._fetching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Closes the connections. May be called while keys are fetched."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        await self._http.aclose()

    async def identify(self, token: str) -> Identity:
        """Verifies a token and returns its identity. Cost: some 100 µs. Waits for the issuer only if a key is not
        known. Raises `TokenRefused`, `ProviderUnavailable`."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenRefused(f"a token has at most {MAX_TOKEN_CHARACTERS:,} characters")
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenRefused("this is neither a key of this server nor a token (JWT)") from error
        age = time.monotonic() - self._fetched_at
        if age > FRESH_SECONDS:
            fetching = self._fetch()
            if age > STALE_SECONDS:
                await asyncio.shield(fetching)
                if time.monotonic() - self._fetched_at > STALE_SECONDS:
                    raise ProviderUnavailable(f"the identity provider {self.issuer} did not return its keys: try again")
        verifier = self._verifier(header)
        if verifier is None:
            await asyncio.shield(self._fetch())
            verifier = self._verifier(header)
        if verifier is None:
            raise TokenRefused("the issuer has no key of the token's kid and algorithm")
        return self._read(token, verifier)

    def _verifier(self, header: Mapping[str, Any]) -> "jwt.PyJWK | None":
        """Returns the key with which a token claims to be signed, for its algorithm; None if there is not exactly
        one."""
        import jwt

        algorithm, kid = header.get("alg"), header.get("kid")
        fitting = [
            number
            for number, each in enumerate(self._keys)
            if algorithm in ALGORITHMS[each["kty"]]
            and each.get("alg", algorithm) == algorithm
            and kid in (None, each.get("kid"))
        ]
        if len(fitting) != 1:  # ambiguous without a kid, or with the same kid twice
            return None
        wanted = fitting[0], str(algorithm)
        if wanted not in self._verifiers:
            try:
                self._verifiers[wanted] = jwt.PyJWK(dict(self._keys[fitting[0]]), str(algorithm))
            except jwt.PyJWTError:
                return None  # malformed, or of another curve than the algorithm
        return self._verifiers[wanted]

    def _read(self, token: str, verifier: "jwt.PyJWK") -> Identity:
        import jwt

        try:
            claims = jwt.decode(
                token,
                verifier,
                algorithms=[verifier.algorithm_name],
                issuer=self.issuer,
                audience=self._settings.oidc_audience,
                leeway=self._settings.oidc_leeway_seconds,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
            expires_at = float(claims["exp"]) + self._settings.oidc_leeway_seconds
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(f"the token is not accepted: {error}") from error
        subject = claims["sub"]
        if not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
            raise TokenRefused(f"the subject of a token has 1 to {MAX_SUBJECT} printable characters")
        named = _texts(_claim(claims, self._settings.oidc_roles_claim), self._settings.oidc_roles)
        mapped = {self._settings.oidc_roles[each] for each in named if each in self._settings.oidc_roles}
        return Identity(
            subject=subject,
            roles=frozenset(each for each in mapped if each != "admin-of-all-tenants"),
            of_all="admin-of-all-tenants" in mapped,
            tenant=self._tenant(claims),
            expires_at=expires_at,
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        if self._settings.oidc_tenant_claim is None:
            return None
        found = _claim(claims, self._settings.oidc_tenant_claim)
        if found is not None and not isinstance(found, str):
            raise TokenRefused(f"the claim {self._settings.oidc_tenant_claim} must name one tenant")
        return found

    # ── the issuer's keys ───────────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self) -> "asyncio.Task[None] | asyncio.Future[None]":
        """Returns the running fetch, or starts a new one if the last one began long enough ago."""
        if self._fetching is None or self._fetching.done():
            now = time.monotonic()
            if now - self._tried_at < FETCH_SECONDS:
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                done.set_result(None)
                return done
            self._tried_at = now
            self._fetching = asyncio.create_task(self._load(), name="keys of the identity provider")
        return self._fetching

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                about = await self._get(self.discovery)
                if about.get("issuer") != self.issuer:
                    raise ValueError(f"its discovery document names another issuer: {about.get('issuer')!r}")
                told = await self._get(_checked(str(about.get("jwks_uri"))))
            keys = _usable(told.get("keys"))
        except Exception as error:  # whatever the issuer answers, such as arrays nested too deeply or port 99999
            _log.error("the keys of the identity provider %s cannot be fetched: %r", self.issuer, error)
            return
        if keys != self._keys:
            self._keys, self._verifiers = keys, {}
        self._fetched_at = time.monotonic()

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._http.stream("GET", url, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ValueError(f"{url} answers {answer.status_code}")
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise ValueError(f"{url} answers more than {MAX_DOCUMENT_BYTES:,} bytes")
        return msgspec.json.decode(body, type=dict[str, Any])


def _usable(keys: object) -> tuple[Mapping[str, Any], ...]:
    """Returns the public keys for signatures in a key set. A key that contains its private part (`d`) verifies nothing:
    everybody can sign with it."""
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise ValueError(f"its key set has no list of at most {MAX_KEYS} keys")
    return tuple(
        each
        for each in keys
        if isinstance(each, dict) and each.get("use", "sig") == "sig" and "d" not in each
        if isinstance(kind := each.get("kty"), str) and kind in ALGORITHMS
    )


def _checked(url: str) -> str:
    """Checks a URL of the issuer and returns it. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise ValueError(f"its jwks_uri {url!r} is not an https address")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Returns a claim by its name, or by its path with dots. The names on the path may have dots, too.

    >>> _claim({"realm_access": {"roles": ["a"]}}, "realm_access.roles"), _claim({"https://x.org/r": "b"}, "https://x.org/r")
    (['a'], 'b')
    >>> _claim({"resource_access": {"shop.events": {"roles": ["c"]}}}, "resource_access.shop.events.roles")
    ['c']
    """
    if name in claims:
        return claims[name]
    for dot in (at for at, each in enumerate(name) if each == "."):
        inner = claims.get(name[:dot])
        found = _claim(inner, name[dot + 1 :]) if isinstance(inner, dict) else None
        if found is not None:
            return found
    return None


def _texts(value: object, known: Mapping[str, object]) -> Iterable[str]:
    """Returns the texts in a claim: an array, one text, or texts separated by spaces, as in `scope`."""
    if isinstance(value, str):
        return [value] if value in known else value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
