"""Generated requests of two tenants on one server: no answer to one may show what belongs to the other."""

import argparse
import random
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.campaigns.campaign import Outcome, Told
from tests.harness.application import running_application
from tests.harness.postgresql import running_postgresql

__all__ = ["mixed_requests"]

SHARE_OF_ROUTES = 0.4
"""Of the requests that go to any route of the document."""
ENDLESS = ("/v1/events/stream",)
ABOUT = "generated requests of two tenants, none of which may see anything of the other"


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many requests."""
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--postgresql", action="store_true", help="the tenants are schemas of one PostgreSQL")


def run(options: argparse.Namespace, told: Told) -> Outcome:
    """One server, two tenants, so many requests."""
    failures = []
    with ExitStack() as stack:
        where = {}
        if options.postgresql:
            where["database"] = stack.enter_context(running_postgresql()).new_database()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client = stack.enter_context(running_application(folder, **where))
        admin = {"Authorization": f"Bearer {client.post('/v1/keys', json={'role': 'admin'}).json()['key']}"}
        keys = {}
        for name in ("left", "right"):
            made = client.post("/v1/keys", json={"role": "admin", "tenant": name}, headers=admin).json()
            keys[name] = {"Authorization": f"Bearer {made['key']}"}
        try:
            mixed_requests(client, keys, options.requests, options.seed, told)
        except AssertionError as error:
            failures.append(f"{error}")
    place = " on PostgreSQL" if options.postgresql else ""
    summary = f"{options.requests:,} requests of two tenants{place}: {len(failures)} showed what belongs to the other"
    return Outcome(summary, failures)


def mixed_requests(
    client: httpx.Client, keys: Mapping[str, dict[str, str]], count: int, seed: int, progress: Told = lambda *_: None
) -> None:
    """So many requests of tenants in turn: those that make and read what tenants have, and every route of the OpenAPI
    document with what belongs to the other. Every name, value and id that a request of one makes has the tenant's name
    in it, or is a random id that is remembered."""
    chance = random.Random(seed)
    paths: dict[str, dict[str, object]] = client.get("/openapi.json").json()["paths"]
    routes = [
        (method.upper(), path)
        for path, methods in paths.items()
        for method in methods
        if path not in ENDLESS and method != "options"  # which tells the same to everybody
    ]
    known: dict[str, list[str]] = {name: [] for name in keys}
    asked: dict[str, set[str]] = {name: set() for name in keys}
    for number in range(count):
        progress(number, count, "requests")
        name = chance.choice(list(keys))
        other = next(each for each in keys if each != name)
        word = f"{name}word{number}"
        foreign = chance.choice(known[other]) if known[other] else "sub_0"
        own = chance.choice(known[name]) if known[name] else "sub_0"
        method, path, body = chance.choice(
            [
                ("POST", "/v1/subscriptions", {"expression": f"{word} exists or a = 1", "metadata": {"for": word}}),
                ("POST", "/v1/events", {"a": 1, "b": word}),
                ("GET", f"/v1/subscriptions/{foreign}", None),
                ("GET", f"/v1/subscriptions/{own}/events", None),
                ("GET", f"/v1/subscriptions/{foreign}/events", None),
                ("DELETE", f"/v1/subscriptions/{foreign}", None),
                ("POST", f"/v1/subscriptions/{foreign}/pause", None),
                ("POST", "/v1/explain", {"event": {"a": 1}, "subscription": foreign}),
                ("POST", "/v1/match", {"event": {"a": 1}}),
                ("GET", "/v1/events?limit=1000", None),
                ("GET", f"/v1/events/{chance.randint(1, number + 1)}/trace?subscription={foreign}", None),
                ("GET", "/v1/subscriptions?limit=1000", None),
                ("GET", "/v1/subscriptions/export", None),
                ("PUT", f"/v1/synonyms/{word}", {word: ["x"]}),
                ("GET", "/v1/synonyms", None),
                ("GET", "/v1/audit?limit=1000", None),
                ("GET", "/v1/keys", None),
                ("GET", "/v1/usage", None),
            ]
        )
        if anywhere := chance.random() < SHARE_OF_ROUTES:
            method, path = chance.choice(routes)
            strange = f"{other}word{chance.randint(0, number)}" if method == "GET" else word
            filled = {"id": foreign, "sequence": str(chance.randint(1, number + 1)), "name": strange, "type": strange}
            path, body = path.format(**filled), None if method == "GET" else {}
        else:
            strange = ""
        answer = client.request(method, path, json=body, headers=keys[name])
        assert answer.status_code < 500, (method, path, answer.text)
        told = answer.text.replace(foreign, "")
        told = told.replace(strange, "") if strange else told
        assert f"{other}word" not in told, (method, path)
        assert f'"tenant":"{other}"' not in told, (method, path)
        asked[name].add(foreign)  # its own audit log says what it asked for
        assert not [each for each in known[other] if each in told and each not in asked[name]], (method, path)
        if foreign != "sub_0" and foreign in path:
            assert answer.status_code >= 400 if anywhere else answer.status_code == 404, (method, path, answer.text)
        if path == "/v1/subscriptions" and answer.status_code == 201:
            known[name].append(answer.json()["id"])
    assert all(known.values())
