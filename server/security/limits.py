"""Limits of keys and tenants. Off until set.

    requests, events and bytes a second     token buckets that hold what `WINDOW_SECONDS` bring
    connections                             requests under way at one time, streams and long polls among them
    subscriptions                           checked where they are made: see the broker
    matches an event                        an event that has more is refused before it is stored: see the broker

A request is admitted while anything is left in each bucket, and what it took is charged when that is known: a bucket
may go below zero by one request, and the wait is the longer for it.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kindcast.server.errors import ServerError

__all__ = ["LIMITS", "NO_QUOTA", "WINDOW_SECONDS", "LimitReached", "Meter", "Quota", "bad_limit"]

WINDOW_SECONDS = 10

QUOTA_SECONDS = 60
"""After which a client may ask again whether a quota has room: nobody knows when."""

RATES = {"requests_per_second": "requests", "events_per_second": "events", "bytes_per_second": "content-bytes"}
"""The limits that are rates, and the units of their quotas, as `RateLimit-Policy` names them."""

LIMITS = (*RATES, "connections", "subscriptions", "matches_per_event")
"""All limits that can be set, of a key, of a tenant, and by settings of all keys or tenants."""


def bad_limit(limits: Mapping[str, object]) -> str | None:
    """What is wrong with limits that somebody wants to set; None if nothing is."""
    for name, value in limits.items():
        if name not in LIMITS:
            return f"there is no limit {name[:100]!r}; known are {', '.join(LIMITS)}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
            return f"the limit {name} must be a number above 0"
        if name not in RATES and value != int(value):
            return f"the limit {name} must be a whole number"
    return None


class LimitReached(ServerError):
    """A limit is reached. `headers` are those of the answer 429."""

    def __init__(self, detail: str, headers: Mapping[str, str]) -> None:
        super().__init__(detail)
        self.headers = dict(headers)


@dataclass(frozen=True, slots=True)
class Quota:
    """How many subscriptions a tenant, and a key, may have; None: any number."""

    of_tenant: int | None = None
    of_key: int | None = None

    def reached(self, of_tenant: int, of_key: int) -> LimitReached | None:
        """The error when one more is too many."""
        for whose, most, there in (("tenant", self.of_tenant, of_tenant), ("key", self.of_key, of_key)):
            if most is not None and there >= most:
                name = f'"{whose}-subscriptions"'
                fields = {"RateLimit-Policy": f'{name};q={most};qu="subscriptions"', "RateLimit": f"{name};r=0"}
                detail = f"this {whose} may have {most:,} subscriptions: delete one, or ask for more"
                return LimitReached(detail, {**fields, "Retry-After": str(QUOTA_SECONDS)})
        return None


NO_QUOTA = Quota()


class _Bucket:
    """`rate` a second, at most `quota` at one time."""

    def __init__(self, unit: str, rate: float) -> None:
        self.unit, self.rate = unit, rate
        self.quota = max(1.0, rate * WINDOW_SECONDS)
        self.left = self.quota
        self._at = time.monotonic()

    def look(self) -> float:
        """What is left now."""
        now = time.monotonic()
        self.left = min(self.quota, self.left + (now - self._at) * self.rate)
        self._at = now
        return self.left

    def wait(self) -> int:
        """Seconds until something is left."""
        return max(1, math.ceil((1.0 - self.left) / self.rate))


class Meter:
    """What one key, or one tenant, takes and may take. On one event loop."""

    def __init__(self, whose: str, limits: Mapping[str, float]) -> None:
        self.whose = whose
        self.limits: Mapping[str, float] = {}
        self._buckets: list[_Bucket] = []
        self.under_way = 0
        """Requests that are being answered."""
        self.set(limits)

    def set(self, limits: Mapping[str, float]) -> None:
        """Other limits from now on; buckets whose limit stays keep what they hold."""
        if limits == self.limits:
            return
        known = {each.unit: each for each in self._buckets}
        buckets = []
        for name, unit in RATES.items():
            if name in limits:
                same = known.get(unit)
                buckets.append(same if same and same.rate == limits[name] else _Bucket(unit, float(limits[name])))
        self._buckets, self.limits = buckets, dict(limits)

    def check(self, *, publishes: bool, begins: bool = True) -> None:
        """Raises `LimitReached`. Events are only looked at for requests that publish, connections for those that
        begin."""
        most = self.limits.get("connections") if begins else None
        if most is not None and self.under_way >= most:
            policy = f'"{self.whose}-concurrent-requests";q={int(most)};qu="concurrent-requests"'
            state = f'"{self.whose}-concurrent-requests";r=0'
            detail = f"this {self.whose} has {int(most):,} running requests, which is its limit"
            raise LimitReached(detail, {"RateLimit-Policy": policy, "RateLimit": state, "Retry-After": "1"})
        for each in self._buckets:
            if (publishes or each.unit != "events") and each.look() < 1.0:
                detail = f"this {self.whose} may use {each.rate:g} {each.unit} a second: try again in {each.wait()} s"
                raise LimitReached(detail, self.fields() | {"Retry-After": str(each.wait())})

    def take(self, unit: str, amount: int) -> None:
        """Charge what was used."""
        for each in self._buckets:
            if each.unit == unit:
                each.left -= amount

    def used(self) -> dict[str, float]:
        """How much of each limit is taken now: of rates, a second on average over `WINDOW_SECONDS`."""
        found: dict[str, float] = {}
        for name, unit in RATES.items():
            for each in self._buckets:
                if each.unit == unit:
                    found[name] = round((each.quota - each.look()) / WINDOW_SECONDS, 3)
        return found | ({"connections": self.under_way} if "connections" in self.limits else {})

    def fields(self) -> dict[str, str]:
        """`RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10), without limits none."""
        if not self._buckets:
            return {}
        policies, states = [], []
        for each in self._buckets:
            name = f'"{self.whose}-{each.unit}"'
            left = each.look()
            unit = "" if each.unit == "requests" else f';qu="{each.unit}"'
            policies.append(f"{name};q={int(each.quota)}{unit};w={WINDOW_SECONDS}")
            states.append(f"{name};r={max(0, int(left))};t={math.ceil(max(0.0, each.quota - left) / each.rate)}")
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
