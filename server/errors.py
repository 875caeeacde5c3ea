"""The exceptions of the server. `problem_types.py` converts them to HTTP answers.

ServerError
├── StoreUnavailable        a transaction could not be committed, so nothing was changed
│   ├── StoreInDoubt        the database did not say whether it committed
│   └── StoreDamaged        the database is damaged
├── RecordDamaged           a stored event does not have its stored digest
├── BrokerBusy              too much is queued
├── StoreInUse              another server has this data folder, or this database
├── StoreUnreadable         the database cannot be opened, or was written by another version
├── UnknownSubscription     no subscription has this id
├── HiddenAttribute         the request uses an attribute that the role may not see
├── TicketMissing           the change needs the header Kindcast-Ticket
├── TicketWrong             that is not its ticket
├── SubscriptionGone        expired for longer than the grace period: make a new one
├── SubscriptionChanged     its entity tag is not in If-Match
├── SinkMissing             settings for a webhook, but no sink
├── IdempotencyKeyReused    an Idempotency-Key came with another request before
├── TooManySubscriptions    the limit of this server is reached
├── BackfillTooLarge        a new subscription asks for too many past events
├── TooManyMatches          an event matches more subscriptions than the limit
├── NotWithShards           a server with shards does not support the request
├── UnknownOntology         no ontology, or no version of it, has this name
├── UnknownJob              no job has this id, or it ended long ago
├── SparkMissing            a backtest needs Spark, which is not installed
├── BacktestFailed          the Spark job of a backtest failed
├── NothingBefore           no other version was active before, so a rollback is impossible
├── UnknownDeclaration      nothing of this kind and name was declared
├── OntologyInUse           subscriptions depend on it; `subscriptions` has some ids, `count` how many
├── OntologyShared          all tenants share it, so this request may not change it
├── SharingRefused          tenants have an ontology or declarations that do not fit; `tenants` counts them
├── UnknownOperator         no remote operator has this name
├── OperatorInUse           subscriptions call it; `subscriptions` has some ids, `count` how many
├── OperatorFixed           the operator belongs to the server or a plug-in
├── TooManyOperators        the limit of remote operators is reached
├── VersionChanged          the active version is not the version in If-Match
├── UnknownEvent            no event has this sequence number, or it was deleted
├── UnknownKey              no key has this id
├── KeyMade                 the same request made a key before; `id` is that of the key
├── LastKey                 without this key nobody could administer the server
├── UnknownTenant           no tenant has this name
├── TenantExists            a tenant has this name already
├── TenantInUse             it cannot be deleted
├── CertificateUnusable     the server cannot speak TLS with the files that it was given
├── KeysNeeded              other machines can reach the server, and there is no key yet
└── KeysLost                the keys of the server are missing
"""

from collections.abc import Sequence
from typing import Self

__all__ = [
    "BackfillTooLarge",
    "BacktestFailed",
    "BrokerBusy",
    "CertificateUnusable",
    "HiddenAttribute",
    "IdempotencyKeyReused",
    "KeyMade",
    "KeysLost",
    "KeysNeeded",
    "LastKey",
    "NotWithShards",
    "NothingBefore",
    "OntologyInUse",
    "OntologyShared",
    "OperatorFixed",
    "OperatorInUse",
    "RecordDamaged",
    "ServerError",
    "SharingRefused",
    "SinkMissing",
    "SparkMissing",
    "StoreDamaged",
    "StoreInDoubt",
    "StoreInUse",
    "StoreUnavailable",
    "StoreUnreadable",
    "SubscriptionChanged",
    "SubscriptionGone",
    "TenantExists",
    "TenantInUse",
    "TicketMissing",
    "TicketWrong",
    "TooManyMatches",
    "TooManyOperators",
    "TooManySubscriptions",
    "UnknownDeclaration",
    "UnknownEvent",
    "UnknownJob",
    "UnknownKey",
    "UnknownOntology",
    "UnknownOperator",
    "UnknownSubscription",
    "UnknownTenant",
    "VersionChanged",
]


class ServerError(Exception):
    """The server cannot do this. The first line of the class docstring is the message, unless one is given."""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or (type(self).__doc__ or "").partition("\n")[0])


class StoreUnavailable(ServerError):
    """The database could not store the change, so nothing was changed. Try again later with the same ids."""

    @classmethod
    def because(cls, reason: str | None) -> Self:
        """Returns the error with its reason, if it is known."""
        return cls(f"{cls()} The reason: {reason}" if reason else None)


class StoreInDoubt(StoreUnavailable):
    """The database did not say whether it stored the change. Try again later with the same ids, or look first."""


class StoreDamaged(StoreUnavailable):
    """The database is damaged: kindcast check says what is damaged."""


class HiddenAttribute(ServerError):
    """The request uses values that the role, `whose`, may not see. `names`: the hidden attributes, and operators,
    because they see all attributes."""

    def __init__(self, names: Sequence[str], whose: str = "this role") -> None:
        self.names = list(names)
        told = ", ".join(repr(each[:100]) for each in self.names[:10])
        super().__init__(
            f"this uses {told}: declarations of attributes (readable_by, matchable_by) hide these values from {whose}"
        )


class RecordDamaged(ServerError):
    """A stored event does not have its stored digest. `position` is its place in the queue of the reader."""

    def __init__(self, sequence: int, position: int | None = None) -> None:
        self.sequence, self.position = sequence, position
        self.record = f"event {sequence}"
        way = f"acknowledge the cursor {position}, or read after it" if position else f"read after {sequence}"
        super().__init__(
            f"the stored event {sequence} is damaged, so the server does not return it. An administrator can see"
            f" details with kindcast check. To continue without this event, {way}"
        )


class BrokerBusy(ServerError):
    """Too many events are waiting. Try again in a moment."""


class StoreInUse(ServerError):
    """Another server uses this data folder or database."""


class StoreUnreadable(ServerError):
    """The database cannot be opened, or was written by another version."""


class UnknownSubscription(ServerError):
    """There is no subscription of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no subscription {id!r}; it may have been deleted or have expired long ago")


class TicketMissing(ServerError):
    """This change needs the ticket of the subscription in the header Kindcast-Ticket."""


class TicketWrong(ServerError):
    """The ticket is not the ticket of this subscription."""


class SubscriptionGone(ServerError):
    """The subscription expired too long ago to be renewed. Make a new one."""


class SubscriptionChanged(ServerError):
    """The subscription was changed meanwhile: read it again, and send its new ETag."""


class SinkMissing(ServerError):
    """protocol, protocolsettings, sinkcredential and throttling need a sink. Give a sink as well."""


class BackfillTooLarge(ServerError):
    """Too many events were accepted since `start_at`, or too many of them match. Nothing was created."""


class TooManyMatches(ServerError):
    """The event matches more subscriptions than the limit, so it was not stored."""


class NotWithShards(ServerError):
    """A server with shards does not support this request."""


class IdempotencyKeyReused(ServerError):
    """Another request used this `Idempotency-Key` before, or the subscription or key that it made was changed since."""


class TooManySubscriptions(ServerError):
    """The limit of subscriptions is reached."""


class UnknownOntology(ServerError):
    """There is no ontology of this name, or no such version."""


class UnknownJob(ServerError):
    """There is no job of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no job {id!r}: it may have ended long ago or before the last start of the server")


class SparkMissing(ServerError):
    """The backtest has so many events that it needs Spark, which is not installed."""


class BacktestFailed(ServerError):
    """The Spark job of the backtest failed."""


class NothingBefore(ServerError):
    """No other version was active before."""


class UnknownDeclaration(ServerError):
    """Nothing of this kind and name was declared."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"no {kind} {name!r} was declared" if kind != "rates" else "no rates were declared")


class OntologyInUse(ServerError):
    """Subscriptions depend on concepts that only this ontology has."""

    def __init__(self, name: str, count: int, subscriptions: list[str], detail: str = "") -> None:
        shown = ", ".join(subscriptions)
        many = "1 subscription depends" if count == 1 else f"{count} subscriptions depend"
        super().__init__(detail or f"{many} on concepts that only {name!r} has: {shown}")
        self.count = count
        self.subscriptions = subscriptions


class OntologyShared(ServerError):
    """All tenants share this ontology. Only an administrator of all tenants can change it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"all tenants share the ontology {name!r}: only an administrator of all tenants can change it, with"
            " shared=true (--shared)"
        )


class SharingRefused(ServerError):
    """Tenants have an ontology of the same name, or declarations that do not fit the shared ontology. `tenants`: how
    many."""

    def __init__(self, detail: str, tenants: int) -> None:
        super().__init__(detail)
        self.tenants = tenants


class UnknownOperator(ServerError):
    """There is no remote operator of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no remote operator {name!r}: GET /v1/operators lists all operators")


class OperatorInUse(ServerError):
    """Subscriptions call this operator."""

    def __init__(self, name: str, count: int, subscriptions: list[str]) -> None:
        shown = ", ".join(subscriptions)
        many = "1 subscription calls" if count == 1 else f"{count} subscriptions call"
        super().__init__(f"{many} the operator {name!r}: {shown}")
        self.count = count
        self.subscriptions = subscriptions


class OperatorFixed(ServerError):
    """The operator belongs to the server or a plug-in: it cannot be changed or deleted. Choose another name."""


class TooManyOperators(ServerError):
    """The limit of remote operators is reached."""


class UnknownEvent(ServerError):
    """There is no event with this sequence number, or it is older than the retention."""


class VersionChanged(ServerError):
    """The active version is not the version that the request replaces."""


class UnknownKey(ServerError):
    """There is no key of this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"there is no key {id!r}: kindcast key list shows all keys")


class KeyMade(ServerError):
    """The same request made a key before. A key is shown once."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"this request made the key {id!r} before, and a key is shown once: rotate it (kindcast key rotate {id}),"
            f" or revoke it (kindcast key revoke {id})"
        )
        self.id = id


class LastKey(ServerError):
    """No other key of an administrator of all tenants is valid for a day more: make one first, or rotate this one."""


class UnknownTenant(ServerError):
    """There is no tenant of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no tenant {name!r}: create it with POST /v1/tenants or with a first key")


class TenantExists(ServerError):
    """There is a tenant of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a tenant {name!r} already")


class TenantInUse(ServerError):
    """The tenant cannot be deleted: it still has keys, or it is `default`."""


class CertificateUnusable(ServerError):
    """The server cannot speak TLS with the files of its certificate and key."""


class KeysLost(ServerError):
    """The keys of the server are missing."""


class KeysNeeded(ServerError):
    """Other machines can reach the server, and there is no key of an administrator yet."""
