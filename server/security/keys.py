"""API keys, sent as `Authorization: Bearer kindcast_<id>_<secret>`.

The secret has 256 random bits and is shown once. The store keeps the SHA-256 of the whole key. A fast hash is enough,
because 256 bits cannot be guessed. The id is public: the key is found by it, and then hashes are compared in constant
time.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from kindcast.server.security.tickets import Repeatable, random_bytes

__all__ = ["DEFAULT_TENANT", "KEY", "TENANT", "Key", "Role", "hash_of", "id_of", "is_key_of", "new_key"]

Role = Literal["admin", "ontologist", "publisher", "subscriber", "auditor"]

DEFAULT_TENANT = "default"
"""The tenant that exists without keys, and that of keys without a tenant."""

TENANT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""The form of names of tenants, which are also names of folders and schemas."""

KEY = re.compile(r"kindcast_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
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

    def shown(self) -> dict[str, Any]:
        """Returns everything except hash and origin."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name not in ("hash", "origin")}


def new_key(repeatable: Repeatable | None = None) -> tuple[str, str]:
    """Returns an id and a new key with it. The id of a `repeatable` request is always the same; the secret never is."""
    id = random_bytes("key", ID_BYTES, repeatable).hex()
    return id, f"kindcast_{id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def hash_of(key: str) -> str:
    """Returns the stored hash of a key: SHA-256, in hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def id_of(key: str) -> str | None:
    """Returns the id in a text that has the form of a key, else None."""
    found = KEY.fullmatch(key)
    return None if found is None else found[1]


def is_key_of(key: str, known: Key, now: float) -> bool:
    """Whether this is the key and it has not expired."""
    right = hmac.compare_digest(hash_of(key), known.hash)
    return right and (known.expires_at is None or now < known.expires_at)
