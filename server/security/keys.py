"""API keys, sent as `Authorization: Bearer kindcast_<id>_<secret>`; and tickets, which changes of a subscription need.

The secret has 256 random bits and is shown once. The store keeps the SHA-256 of the whole key. A fast hash is enough,
because 256 bits cannot be guessed. The id is public: the key is found by it, and then hashes are compared in constant
time.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kindcast.server.clock import instant
from kindcast.server.errors import TicketMissing, TicketWrong

__all__ = [
    "DEFAULT_TENANT",
    "KEY",
    "TENANT",
    "TICKET_HEADER",
    "Claim",
    "Key",
    "Repeatable",
    "Role",
    "check_ticket",
    "hash_of",
    "id_of",
    "is_key_of",
    "new_key",
    "new_ticket",
    "random_bytes",
    "without_secrets",
]


Role = Literal["admin", "ontologist", "publisher", "subscriber", "auditor"]

DEFAULT_TENANT = "default"
"""The tenant that exists without keys, and that of keys without a tenant."""

TENANT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""The form of names of tenants, which are also names of folders and schemas."""

KEY = re.compile(r"kindcast_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
SECRET = re.compile(r"(?<=[0-9a-f]{16}_)[A-Za-z0-9_-]{20,}|(?<=/subscriptions/)[A-Za-z0-9_-]{21,}")
"""In a path: the secret of a key, also if a part of the key is missing, and what is too long for the id of a
subscription: perhaps its ticket."""
SECRET_BYTES = 32
ID_BYTES = 8


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """The stored data of a key, without the key itself. `tenant` is None for an administrator of all tenants."""

    id: str
    hash: str
    role: Role
    tenant: str | None
    name: str
    created_at: float
    expires_at: float | None
    limits: Mapping[str, float] = {}
    created_by: str | None = None
    origin: str = ""
    """The id of the first key in a chain of rotations. What one of these keys created belongs to all of them."""

    @property
    def owner(self) -> str:
        """The value of `created_by` in its subscriptions."""
        return f"key {self.origin}"

    def shown(self) -> dict[str, Any]:
        """Returns everything except hash and origin, with times as RFC 3339."""
        told = {name: value for name, value in msgspec.structs.asdict(self).items() if name not in ("hash", "origin")}
        ends = None if self.expires_at is None else instant(self.expires_at)
        return told | {"created_at": instant(self.created_at), "expires_at": ends}


def new_key(repeatable: "Repeatable | None" = None) -> tuple[str, str]:
    """Returns an id and a new key with it. The id of a `repeatable` request is always the same; the secret never is."""
    id = random_bytes("key", ID_BYTES, repeatable).hex()
    return id, f"kindcast_{id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def hash_of(secret: str) -> str:
    """Returns the stored hash of a key, a ticket or the token of a session: SHA-256, in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def without_secrets(path: str) -> str:
    """Returns the path without the secrets of keys, and without tickets: somebody may write a key or a ticket where an
    id belongs.

    >>> without_secrets("/v1/keys/0123456789abcdef_" + 43 * "x")
    '/v1/keys/0123456789abcdef_(hidden)'
    >>> without_secrets("/v1/subscriptions/" + 43 * "x" + "/pause")
    '/v1/subscriptions/(hidden)/pause'
    >>> without_secrets("/v1/subscriptions/sub_0123456789abcdef/pause")
    '/v1/subscriptions/sub_0123456789abcdef/pause'
    """
    return SECRET.sub("(hidden)", path)


def id_of(key: str) -> str | None:
    """Returns the id in a text that has the form of a key, else None."""
    found = KEY.fullmatch(key)
    return None if found is None else found[1]


def is_key_of(key: str, known: Key, now: float) -> bool:
    """Whether this is the key and it has not expired."""
    right = hmac.compare_digest(hash_of(key), known.hash)
    return right and (known.expires_at is None or now < known.expires_at)


# ── tickets: secrets returned when a subscription is created, and required for every later change of it ───────────────
#
# A ticket has 256 random bits and is shown once. The store keeps its SHA-256. A fast hash is enough, because 256 bits
# cannot be guessed.

TICKET_HEADER = "Kindcast-Ticket"

TICKET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that its client may repeat, with the header `Idempotency-Key`. The random values of its subscription
    are derived from the key. So the subscription is created once, and the same answer can be given again although no
    secret is stored. Anybody with the key can get the ticket by repeating the request, so the key must be kept as
    secret."""

    owner: str | None
    """The caller, as in `created_by`. Equal keys of different callers are different."""
    keyed: hmac.HMAC
    """An HMAC that has the key and no message. It is copied for each value, because to take in a key costs more."""
    part: int = 0
    """The index within a request that creates several subscriptions."""

    @classmethod
    def of(cls, owner: str | None, key: str) -> "Repeatable":
        """Returns the request with this `Idempotency-Key`."""
        return cls(owner, hmac.new(key.encode("utf-8", "surrogatepass"), digestmod="sha256"))

    def of_part(self, part: int) -> "Repeatable":
        """Returns the request of one subscription."""
        return Repeatable(self.owner, self.keyed, part)

    def random(self, what: str, size: int) -> bytes:
        """Returns at most 32 pseudo-random bytes, always the same for `what`."""
        drawn = self.keyed.copy()
        drawn.update(f"{self.owner or ''}\n{self.part}\n{what}".encode("utf-8", "surrogatepass"))
        return drawn.digest()[:size]


def new_ticket(repeatable: Repeatable | None = None, terms: str = "") -> str:
    """Returns a ticket: 43 characters of base64url. The ticket of a `repeatable` request also depends on its `terms`,
    the parts of the request that are not stored. So if they differ in a later request, its ticket is not the stored
    one."""
    drawn = random_bytes(f"ticket\n{terms}" if terms else "ticket", TICKET_BYTES, repeatable)
    return base64.urlsafe_b64encode(drawn).rstrip(b"=").decode("ascii")


def random_bytes(what: str, size: int, repeatable: Repeatable | None = None) -> bytes:
    """Returns bytes that nobody can guess. For a `repeatable` request they are always the same for `what`."""
    return _POOL.draw(size) if repeatable is None else repeatable.random(what, size)


class _Pool:
    """Random bytes of the operating system, fetched many at a time, because a system call for each takes longer than
    the rest of an imported line. None is returned twice. May be used in any thread."""

    SIZE = 4_096

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._bytes = b""

    def draw(self, size: int) -> bytes:
        with self._door:
            if len(self._bytes) < size:
                self._bytes = secrets.token_bytes(max(self.SIZE, size))
            drawn, self._bytes = self._bytes[:size], self._bytes[size:]
            return drawn

    def forget(self) -> None:
        """Drops the buffer in a forked process, because its parent has the same bytes."""
        self._door, self._bytes = threading.Lock(), b""


_POOL = _Pool()
os.register_at_fork(after_in_child=_POOL.forget)


@dataclass(frozen=True, slots=True)
class Claim:
    """What allows a client to change a subscription: the ticket, or the key of the request."""

    ticket: str | None = None
    owner: str | None = None
    """The caller, as in `created_by` of its subscriptions; None without keys."""
    is_admin: bool = False
    roles: frozenset[str] | None = None
    """The roles that decide what it may see of the subscription; None: everything."""


def check_ticket(claim: Claim | str | None, ticket_hash: str, created_by: str | None = None) -> None:
    """Raises `TicketMissing` without a ticket, and `TicketWrong` for the ticket of another subscription. An
    administrator and the key that created the subscription need no ticket."""
    if not isinstance(claim, Claim):
        claim = Claim(claim)
    if claim.is_admin or (claim.owner is not None and claim.owner == created_by):
        return
    if not claim.ticket:
        raise TicketMissing
    if not hmac.compare_digest(hash_of(claim.ticket), ticket_hash):
        raise TicketWrong
