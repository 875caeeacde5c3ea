"""Limits of keys and tenants. Off until set.

    requests, events and bytes a second     token buckets with the amount of `WINDOW_SECONDS`
    connections                             running requests, including streams and long polls
    subscriptions                           checked at creation: see the broker
    matches an event                        an event that has more is refused before it is stored: see the broker

A request is admitted while each bucket has anything left. Its cost is charged when it is known: bytes when they arrive.
So a bucket may go below zero by one request, and then the wait is longer. Events and bytes are checked once more when
they are charged, because requests at the same time are all admitted before.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kindcast.server.errors import ServerError

__all__ = ["LIMITS", "NO_QUOTA", "QUOTA_SECONDS", "WINDOW_SECONDS", "LimitReached", "Meter", "Quota", "bad_limit"]

WINDOW_SECONDS = 10

QUOTA_SECONDS = 60
"""The Retry-After of a quota: it is not known when there will be room."""

RATES = {"requests_per_second": "requests", "events_per_second": "events", "bytes_per_second": "content-bytes"}
"""The limits that are rates, and the units of their quotas in `RateLimit-Policy`."""

LIMITS = (*RATES, "connections", "subscriptions", "matches_per_event")
"""All limits that can be set for a key, for a tenant, and by settings for all keys or tenants."""

LEAST = 0.000001
"""The smallest limit, one in some twelve days. With less, the time until a request may be sent again is no number."""
MOST = 1_000_000_000_000_000


def bad_limit(limits: Mapping[str, object]) -> str | None:
    """Returns the problem of requested limits; None if there is none."""
    for name, value in limits.items():
        if name not in LIMITS:
            return f"there is no limit {name[:100]!r}; known are {', '.join(LIMITS)}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            return f"the limit {name} must be a number between {LEAST:f} and {MOST:,}"
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
    """The maximum numbers of subscriptions of a tenant and of a key; None for no limit."""

    of_tenant: int | None = None
    of_key: int | None = None

    def reached(self, of_tenant: int, of_key: int) -> LimitReached | None:
        """Returns the error if one more subscription is too many, else None."""
        for whose, most, there in (("tenant", self.of_tenant, of_tenant), ("key", self.of_key, of_key)):
            if most is not None and there >= most:
                name = f'"{whose}-subscriptions"'
                fields = {"RateLimit-Policy": f'{name};q={most};qu="subscriptions"', "RateLimit": f"{name};r=0"}
                detail = f"this {whose} may have {most:,} subscriptions: delete one, or ask for more"
                return LimitReached(detail, {**fields, "Retry-After": str(QUOTA_SECONDS)})
        return None


NO_QUOTA = Quota()


class _Bucket:
    """A token bucket: `rate` per second, at most `quota` at one time."""

    def __init__(self, unit: str, rate: float) -> None:
        self.unit, self.rate = unit, rate
        self.quota = max(1.0, rate * WINDOW_SECONDS)
        self.window = max(WINDOW_SECONDS, math.ceil(1.0 / rate))
        """The seconds in which an empty bucket becomes full."""
        self.left = self.quota
        self.emptied_by: object = None
        """The request that took what was left."""
        self._at = time.monotonic()

    def look(self) -> float:
        """Returns what is left now."""
        now = time.monotonic()
        self.left = min(self.quota, self.left + (now - self._at) * self.rate)
        self._at = now
        return self.left

    def wait(self) -> int:
        """Returns the seconds until something is left."""
        return max(1, math.ceil((1.0 - self.left) / self.rate))


class Meter:
    """The usage and the limits of one key or one tenant. For one event loop."""

    def __init__(self, whose: str, limits: Mapping[str, float]) -> None:
        self.whose = whose
        self.limits: Mapping[str, float] = {}
        self._buckets: list[_Bucket] = []
        self.under_way = 0
        """The number of running requests."""
        self.set(limits)

    def set(self, limits: Mapping[str, float]) -> None:
        """Sets other limits. Buckets whose limit does not change keep their content."""
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
        """Raises `LimitReached` if a limit is reached. Events are checked only for requests that publish, and
        connections only for requests that begin."""
        most = self.limits.get("connections") if begins else None
        if most is not None and self.under_way >= most:
            policy = f'"{self.whose}-concurrent-requests";q={int(most)};qu="concurrent-requests"'
            state = f'"{self.whose}-concurrent-requests";r=0'
            detail = f"this {self.whose} has {int(most):,} running requests, which is its limit"
            raise LimitReached(detail, {"RateLimit-Policy": policy, "RateLimit": state, "Retry-After": "1"})
        for each in self._buckets:
            if publishes or each.unit != "events":
                self._check_rate(each)

    def check_again(self, unit: str, request: object) -> None:
        """Raises `LimitReached` if the limit of this unit is reached, unless `request` has reached it: many requests
        may have been admitted before the cost of one of them was charged."""
        for each in self._buckets:
            if each.unit == unit and each.emptied_by is not request:
                self._check_rate(each)

    def _check_rate(self, bucket: _Bucket) -> None:
        if bucket.look() < 1.0:
            wait = bucket.wait()
            detail = f"this {self.whose} may use {bucket.rate:g} {bucket.unit} a second: try again in {wait} s"
            raise LimitReached(detail, self.fields() | {"Retry-After": str(wait)})

    def take(self, unit: str, amount: int, request: object = None) -> None:
        """Charges an amount."""
        for each in self._buckets:
            if each.unit == unit:
                each.left -= amount
                if each.left < 1.0:
                    each.emptied_by = request

    def used(self) -> dict[str, float]:
        """Returns how much of each limit is used now. For rates, this is the average per second over the window."""
        found: dict[str, float] = {}
        for name, unit in RATES.items():
            for each in self._buckets:
                if each.unit == unit:
                    found[name] = round((each.quota - each.look()) / each.window, 6)
        return found | ({"connections": self.under_way} if "connections" in self.limits else {})

    def fields(self) -> dict[str, str]:
        """Returns the fields `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10); none without
        limits."""
        if not self._buckets:
            return {}
        policies, states = [], []
        for each in self._buckets:
            name = f'"{self.whose}-{each.unit}"'
            left = each.look()
            unit = "" if each.unit == "requests" else f';qu="{each.unit}"'
            policies.append(f"{name};q={int(each.quota)}{unit};w={each.window}")
            states.append(f"{name};r={max(0, int(left))};t={math.ceil(max(0.0, each.quota - left) / each.rate)}")
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
