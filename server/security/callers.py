"""Callers: the keys, their rights, and their use of the server.

Authorization: Bearer … ──KeyRing──▶ Caller: who, in which tenant, with which permissions ──▶ the gate
                          ▲
      SystemStore ──load──┘  again after any change
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kindcast.server.security.identity_provider import Identity
from kindcast.server.security.keys import DEFAULT_TENANT, Claim, Key, Role, id_of, is_key_of
from kindcast.server.security.limits import Meter, Quota
from kindcast.server.security.permissions import Permission, permissions_of
from kindcast.server.settings import Settings
from kindcast.server.store.system import SystemStore, Tenant

__all__ = ["ANYBODY", "Caller", "KeyRing", "Usage"]

EVERYTHING = frozenset(Permission)
_ADMIN: frozenset[Role] = frozenset({"admin"})
MAX_SUBJECTS = 10_000
"""The maximum number of subjects of an identity provider whose use is remembered. The least recently used one without
running requests is dropped first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request, and what it may do."""

    who: str
    """The name in the audit log: `key ID` or `subject NAME`."""
    owner: str | None
    """The value of `created_by` in its subscriptions; None without keys."""
    tenant: str
    """The tenant in which it acts."""
    permissions: frozenset[Permission]
    of_all: bool = False
    """Whether it administers all tenants."""
    key: str | None = None
    """The id of its key, if it has one."""
    subject: str | None = None
    """The subject of its token, if it has one of an identity provider."""
    session: str | None = None
    """The hash of the token of its session, if it is a browser that signed in."""
    expires_at: float | None = None
    """The end time of the token of its subject."""
    meters: tuple[Meter, ...] = ()
    """The meters of its key and its tenant."""
    roles: frozenset[Role] | None = None
    """The roles that decide what it may read of events; None without keys: everything."""

    def claim(self, ticket: str | None) -> Claim:
        """Returns the claim with which it may change a subscription."""
        is_admin = self.owner is not None and Permission.ADMINISTER in self.permissions
        return Claim(ticket, self.owner, is_admin, self.roles)

    def charge(self) -> None:
        """Counts one request within an open connection. Raises `LimitReached`."""
        for meter in self.meters:
            meter.check(publishes=False, begins=False)
        for meter in self.meters:
            meter.take("requests", 1)

    @property
    def sees_payloads(self) -> bool:
        return Permission.SEE_PAYLOADS in self.permissions

    @property
    def lasting_roles(self) -> frozenset[str] | None:
        """The roles that the server also knows later, while it delivers: those of a key, and none for a token, which
        ends."""
        return self.roles if self.expires_at is None else frozenset()

    @property
    def quota(self) -> Quota:
        """The maximum numbers of subscriptions of its key and its tenant."""
        most = {each.whose: int(each.limits["subscriptions"]) for each in self.meters if "subscriptions" in each.limits}
        return Quota(of_tenant=most.get("tenant"), of_key=most.get("key"))

    @property
    def max_matches(self) -> int | None:
        """The maximum number of subscriptions that its events may match; None if only the limit of the server
        applies."""
        return min(
            (int(each.limits["matches_per_event"]) for each in self.meters if "matches_per_event" in each.limits),
            default=None,
        )


ANYBODY = Caller(who="anybody", owner=None, tenant=DEFAULT_TENANT, permissions=EVERYTHING, of_all=True)
"""The caller of a server without keys. The server listens on this machine only, and changes need tickets."""


class Usage:
    """The usage since it was last stored, by caller and tenant. For one event loop."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], Counter[str]] = {}

    def count(self, caller: Caller, **more: int) -> None:
        """Adds to the usage of a caller."""
        counter = self._counted.setdefault((caller.who, caller.tenant), Counter())
        counter.update(more)

    def forget(self, tenant: str) -> None:
        """Drops the usage of a deleted tenant."""
        self._counted = {each: counter for each, counter in self._counted.items() if each[1] != tenant}

    def take(self) -> tuple[str, list[tuple[str, str, Mapping[str, int]]]]:
        """Returns today's date and the usage, and resets the usage."""
        counted, self._counted = self._counted, {}
        names = ("requests", "refused", "events", "bytes")
        rows: list[tuple[str, str, Mapping[str, int]]] = [
            (who, tenant, {name: each[name] for name in names}) for (who, tenant), each in counted.items()
        ]
        return datetime.now(UTC).date().isoformat(), rows

    def put_back(self, rows: Iterable[tuple[str, str, Mapping[str, int]]]) -> None:
        """Adds usage that was taken and could not be stored."""
        for who, tenant, more in rows:
            self._counted.setdefault((who, tenant), Counter()).update(more)


class KeyRing:
    """The keys and tenants in memory. For one event loop; `load` may be called in any thread."""

    def __init__(self, store: SystemStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._seen = -1, 0
        """What was loaded last: the changes of the store, and its connections."""
        self._loading = threading.Lock()  # several requests may call it at the same time
        self._keys: dict[str, Key] = {}
        self._roles: dict[str, frozenset[str]] = {}
        self._number_of_keys: Counter[str | None] = Counter()
        self._tenants: dict[str, Tenant] = {}
        self._key_meters: dict[str, Meter] = {}
        self._tenant_meters: dict[str, Meter] = {}
        self._subject_meters: dict[str, Meter] = {}

    @property
    def required(self) -> bool:
        """Whether requests need a key or a token: there are keys, or the server can be reached from elsewhere."""
        return bool(self._keys) or self._settings.needs_keys

    @property
    def keys(self) -> Mapping[str, Key]:
        return self._keys

    @property
    def tenants(self) -> Mapping[str, Tenant]:
        return self._tenants

    def number_of_keys(self, tenant: str) -> int:
        """Returns how many keys a tenant has."""
        return self._number_of_keys[tenant]

    def load(self) -> None:
        """Reads keys and tenants again if something has changed. Raises `StoreUnavailable`."""
        with self._loading:
            if (self._store.changes(), self._store.connections) == self._seen:
                return
            changes, keys, tenants = self._store.load()
            self._seen = changes, self._store.connections
            self._keys = {each.id: each for each in keys}
            self._number_of_keys = Counter(each.tenant for each in keys)
            roles: defaultdict[str, set[str]] = defaultdict(set)
            for each in keys:
                roles[each.owner].add(each.role)
            self._roles = {owner: frozenset(found) for owner, found in roles.items()}
            self._tenants = {each.name: each for each in tenants}
            self._key_meters = {id: each for id, each in self._key_meters.items() if id in self._keys}
            known = self._tenants.keys() | {DEFAULT_TENANT}
            self._tenant_meters = {name: each for name, each in self._tenant_meters.items() if name in known}

    def find(self, token: str) -> Key | None:
        """Returns the key of a token; None if it is no key or has expired."""
        id = id_of(token)
        known = None if id is None else self._keys.get(id)
        return known if known is not None and is_key_of(token, known, time.time()) else None

    def is_valid(self, id: str) -> bool:
        """Whether a key is neither revoked nor expired."""
        known = self._keys.get(id)
        return known is not None and (known.expires_at is None or time.time() < known.expires_at)

    def caller(self, key: Key, tenant: str | None, session: str | None = None) -> Caller | None:
        """Returns the caller with this key who acts in `tenant` (None: its own); None if it may not act there."""
        wanted = tenant or key.tenant or DEFAULT_TENANT
        if key.tenant not in (None, wanted):
            return None
        of_all = key.tenant is None and key.role == "admin"
        return Caller(
            who=f"key {key.id}",
            owner=key.owner,
            tenant=wanted,
            permissions=EVERYTHING if of_all else permissions_of([key.role]),
            of_all=of_all,
            key=key.id,
            session=session,
            meters=(self.key_meter(key), self.tenant_meter(wanted)),
            roles=frozenset({key.role}),
        )

    def roles_of(self, owner: str | None) -> frozenset[str] | None:
        """Returns the roles of the creator of a subscription, by its `created_by`: those of the key and of the keys to
        which it was rotated. There are none if all were revoked, or for a subject of the identity provider, whose roles
        are only in its tokens. Returns None if there were no keys then. Called for each webhook, so its cost does not
        depend on the number of keys."""
        if owner is None:
            return None
        return self._roles.get(owner, frozenset())

    def subject(self, identity: Identity, issuer: str, tenant: str | None) -> Caller | None:
        """Returns the caller with a token of the identity provider who acts in `tenant` (None: its own); None if it may
        not act there."""
        own = identity.tenant if self._settings.oidc_tenant_claim is not None else DEFAULT_TENANT
        wanted = tenant or own or DEFAULT_TENANT
        if not identity.of_all and wanted != own:
            return None
        return Caller(
            who=f"subject {identity.subject}",
            owner=f"subject {identity.subject} of {issuer}",
            subject=identity.subject,
            tenant=wanted,
            permissions=EVERYTHING if identity.of_all else permissions_of(identity.roles),
            of_all=identity.of_all,
            expires_at=identity.expires_at,
            meters=(self._subject_meter(identity.subject), self.tenant_meter(wanted)),
            roles=identity.roles | _ADMIN if identity.of_all else identity.roles,
        )

    def tenant_meter(self, tenant: str) -> Meter:
        """Returns the meter of a tenant."""
        known = self._tenants.get(tenant)
        limits = {**self._settings.tenant_limits, **(known.limits if known is not None else {})}
        meter = self._tenant_meters.get(tenant)
        if meter is None:
            meter = self._tenant_meters[tenant] = Meter("tenant", limits)
        meter.set(limits)
        return meter

    def _subject_meter(self, subject: str) -> Meter:
        meter = self._subject_meters.pop(subject, None) or Meter("key", self._settings.key_limits)
        if len(self._subject_meters) >= MAX_SUBJECTS:
            idle = (name for name, each in self._subject_meters.items() if not each.under_way)
            self._subject_meters.pop(next(idle, ""), None)
        self._subject_meters[subject] = meter  # least recently used first
        return meter

    def key_meter(self, key: Key) -> Meter:
        """Returns the meter of a key."""
        limits = {**self._settings.key_limits, **key.limits}
        meter = self._key_meters.get(key.id)
        if meter is None:
            meter = self._key_meters[key.id] = Meter("key", limits)
        meter.set(limits)
        return meter
