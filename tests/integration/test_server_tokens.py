"""Tokens of an identity provider: signed for real, verified against the keys that it serves over HTTP."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from pydantic import ValidationError

from kindcast.server.api import access
from kindcast.server.api.access import AccessControl
from kindcast.server.errors import StoreUnavailable
from kindcast.server.security import identity_provider
from kindcast.server.settings import Settings
from kindcast.server.store.system import SystemStore
from tests.harness.application import problem_code, running_application
from tests.harness.identity_provider import EC_KEY, ED_KEY, RSA_KEY, Provider, running_provider
from tests.harness.server_thread import running_app
from tests.integration.test_server_keys import until

ROLES = {
    "events": "publisher",
    "readers": "subscriber",
    "Keeper of words": "ontologist",
    "checkers": "auditor",
    "bosses": "admin",
    "operations": "admin-of-all-tenants",
}
LONG = 1e6
"""Seconds between two fetches where none may come by chance."""
OTHER_RSA = rsa.generate_private_key(65_537, 2_048)
SMALL_RSA = rsa.generate_private_key(65_537, 1_024)
NESTED = b'{"keys": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
OTHER_EC = ec.generate_private_key(ec.SECP256R1())


def _settings(provider: Provider, **more: Any) -> dict[str, Any]:
    return {
        "oidc_issuer": provider.issuer,
        "oidc_audience": "kindcast",
        "oidc_roles": ROLES,
        "oidc_roles_claim": "realm_access.roles",
        "oidc_tenant_claim": "team",
        **more,
    }


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        provider.publish("ec", EC_KEY)
        provider.publish("ed", ED_KEY)
        yield provider


@pytest.fixture(scope="module")
def client(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_application(tmp_path_factory.mktemp("tokens"), **_settings(provider)) as client:
        yield client


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _as(provider: Provider, *roles: str, **claims: Any) -> dict[str, str]:
    """The header of somebody of the team `default` with these roles at the provider."""
    return _bearer(provider.token(**({"realm_access": {"roles": roles}, "team": "default"} | claims)))


# ── who they are ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_roles_come_from_a_claim(client: httpx.Client, provider: Provider) -> None:
    """Mapped by a setting; several add up, unknown ones give nothing."""
    may = {
        "events": ("POST", "/v1/events"),
        "readers": ("GET", "/v1/subscriptions"),
        "Keeper of words": ("GET", "/v1/terms/unknown"),
        "checkers": ("GET", "/v1/audit"),
        "bosses": ("GET", "/v1/keys"),
        "operations": ("POST", "/v1/clock/confirm"),
    }
    for role, (method, path) in may.items():
        headers = _as(provider, role, "unknown")
        assert client.request(method, path, headers=headers, json={}).status_code < 300, role
    assert client.post("/v1/events", json={}, headers=_as(provider, "readers")).status_code == 403
    assert client.post("/v1/events", json={}, headers=_as(provider, "readers", "events")).status_code == 202
    for nothing in ({"roles": []}, {"roles": "x"}, {"roles": [1, None, {}]}, [], "events", None):
        refused = client.get("/v1/subscriptions", headers=_as(provider, realm_access=nothing))
        assert problem_code(refused) == "not-permitted"
    two = _as(provider, realm_access={"roles": "x events"})
    assert client.post("/v1/events", json={}, headers=two).status_code == 202
    one = _as(provider, realm_access={"roles": "Keeper of words"})
    assert client.get("/v1/terms/unknown", headers=one).status_code == 200
    for own in ("admin", "publisher", "admin-of-all-tenants"):  # names of our roles are none of the provider's
        assert client.post("/v1/events", json={}, headers=_as(provider, own)).status_code == 403


def test_tenant_comes_from_a_claim(client: httpx.Client, provider: Provider) -> None:
    """Nobody reaches another than that; who rules all of them chooses."""
    root = _as(provider, "operations", team=None)
    for name in ("north", "south"):
        assert client.post("/v1/tenants", json={"name": name}, headers=root).status_code == 201
    north = _as(provider, "bosses", team="north")
    made = client.post("/v1/subscriptions", json={"expression": "a exists"}, headers=north).json()
    path = f"/v1/subscriptions/{made['id']}"
    assert client.get(path, headers=north).status_code == 200
    assert client.get(path, headers=_as(provider, "bosses", team="south")).status_code == 404
    assert client.get(path, headers=root | {"Kindcast-Tenant": "north"}).status_code == 200
    assert client.get(path, headers=root).status_code == 404
    assert problem_code(client.get(path, headers=north | {"Kindcast-Tenant": "south"})) == "other-tenant"
    without = client.get(path, headers=_as(provider, "bosses", team=None))
    assert problem_code(without) == "other-tenant"
    assert without.json()["detail"] == "the token names no tenant: it needs the claim team"
    assert problem_code(client.get(path, headers=_as(provider, "bosses", team="../x"))) == "unknown-tenant"
    assert problem_code(client.get(path, headers=_as(provider, "bosses", team=["north", "south"]))) == "token-wrong"


def test_a_token_of_one_tenant_does_not_learn_which_others_there_are(
    client: httpx.Client, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by the time that an answer takes, as with a key."""

    async def no_look(access: AccessControl) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(AccessControl, "refresh", no_look)
        headers = _as(provider, "readers", "bosses") | {"Kindcast-Tenant": "nobodys"}
        assert problem_code(client.get("/v1/subscriptions", headers=headers)) == "other-tenant"


def test_a_tenant_that_another_server_has_just_created_is_known(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for, as for a key: the next regular look may be a second away."""
    monkeypatch.setattr(access, "LOOK_SECONDS", LONG)
    with running_application(tmp_path, **_settings(provider)) as client:
        other = SystemStore(Settings(data=tmp_path))
        other.open()
        other.add_tenant("west", {"subscriptions": 1}, time.time())
        other.close()
        headers = _as(provider, "readers", team="west")
        answers = [client.post("/v1/subscriptions", json={"expression": "a = 1"}, headers=headers) for _ in range(2)]
        assert [each.status_code for each in answers] == [201, 429]
        nowhere = client.get("/v1/subscriptions", headers=_as(provider, "readers", team="nowhere"))
        assert problem_code(nowhere) == "unknown-tenant"


def test_subjects_own_what_they_make_and_are_audited(client: httpx.Client, provider: Provider) -> None:
    """A later token of the same subject may change it without a ticket, another subject may not."""
    ada, eve = (_as(provider, "readers", sub=each) for each in ("ada", "eve"))
    made = client.post("/v1/subscriptions", json={"expression": "a exists"}, headers=ada).json()
    path = f"/v1/subscriptions/{made['id']}"
    assert problem_code(client.delete(path, headers=eve)) in ("ticket-missing", "ticket-wrong")
    assert client.delete(path, headers=_as(provider, "readers", sub="ada", jti="another")).status_code == 200
    entries = client.get("/v1/audit", params={"who": "subject ada"}, headers=_as(provider, "checkers")).json()[
        "entries"
    ]
    assert ("DELETE " + path, 200) in [(each["action"], each["outcome"]) for each in entries]
    told = client.get("/v1/session", headers=ada).json()
    assert (told["who"], told["tenant"], told["role"]) == ("subject ada", "default", None)
    assert told["ends_at"] is not None
    usage = client.get("/v1/usage", headers=_as(provider, "checkers")).json()["usage"]
    assert "subject ada" in {each["who"] for each in usage}


def test_keys_work_beside_tokens(client: httpx.Client, provider: Provider) -> None:
    made = client.post("/v1/keys", json={"role": "admin"}, headers=_as(provider, "operations")).json()
    assert made["created_by"] == "subject ada"
    assert client.get("/v1/keys", headers=_bearer(made["key"])).status_code == 200
    assert problem_code(client.get("/v1/keys", headers=_bearer(made["key"][:-1] + "!"))) == "token-wrong"
    assert problem_code(client.get("/v1/keys")) == "key-missing"
    document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["token"]["openIdConnectUrl"].startswith(provider.issuer)
    assert document["paths"]["/v1/events"]["post"]["security"] == [{"key": []}, {"token": []}]


def test_session_needs_a_key(client: httpx.Client, provider: Provider) -> None:
    """Also if the token is long, as those of many providers are."""
    token = _as(provider, "operations", groups=["shop"] * 500)["Authorization"].removeprefix("Bearer ")
    refused = client.post("/v1/session", json={"key": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert (refused.status_code, problem_code(refused)) == (401, "key-wrong")
    assert refused.json()["detail"] == "a session needs a key: a token cannot begin one"


def test_limits_of_a_subject(provider: Provider, tmp_path: Path) -> None:
    """Those of keys, for all tokens of a subject together."""
    limits = {"key_limits": {"events_per_second": 0.01, "subscriptions": 1}}
    with running_application(tmp_path, **_settings(provider, **limits)) as client:
        ada, eve = (
            [_as(provider, "bosses", sub=each, jti=str(number)) for number in range(2)] for each in ("ada", "eve")
        )
        assert [client.post("/v1/events", json={}, headers=each).status_code for each in ada] == [202, 429]
        body = {"expression": "a exists"}
        assert [client.post("/v1/subscriptions", json=body, headers=each).status_code for each in ada] == [201, 429]
        assert client.post("/v1/events", json={}, headers=eve[0]).status_code == 202


# ── what is no token of ours ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "signed",
    [
        {"key": RSA_KEY, "algorithm": "RS256", "kid": "rsa"},
        {"key": RSA_KEY, "algorithm": "RS512", "kid": "rsa"},
        {"key": RSA_KEY, "algorithm": "PS256", "kid": "rsa"},
        {"key": RSA_KEY, "algorithm": "RS256", "kid": None},  # the only one of its type
        {"key": EC_KEY, "algorithm": "ES256", "kid": "ec"},
        {"key": ED_KEY, "algorithm": "EdDSA", "kid": "ed"},
    ],
    ids=lambda signed: f"{signed['algorithm']}-{signed['kid']}",
)
def test_algorithms(client: httpx.Client, provider: Provider, signed: dict[str, Any]) -> None:
    assert client.get("/v1/subscriptions", headers=_as(provider, "readers", **signed)).status_code == 200


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "not accepted"),
        ({"nbf": 2**40}, "not yet valid"),
        ({"iat": 2**40}, "not yet valid"),
        ({"aud": "another"}, "Audience"),
        ({"aud": None}, "aud"),
        ({"aud": []}, "aud"),
        ({"iss": "https://issuer.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "subject"),
        ({"sub": "x" * 201}, "subject"),
        ({"sub": "a\nb"}, "subject"),
        ({"sub": 7}, "not accepted"),
        ({"key": OTHER_RSA}, "Signature"),
        ({"key": OTHER_EC, "algorithm": "ES256", "kid": "ec"}, "Signature"),
        ({"key": OTHER_RSA, "kid": "unknown"}, "no key"),
        ({"key": RSA_KEY, "kid": "ec"}, "no key"),
        ({"key": EC_KEY, "algorithm": "ES256", "kid": "rsa"}, "no key"),
        ({"key": "x" * 32, "algorithm": "HS256"}, "no key"),
        ({"key": None, "algorithm": "none"}, "no key"),
    ],
)
def test_wrong_tokens_are_refused(client: httpx.Client, provider: Provider, claims: dict[str, Any], told: str) -> None:
    answer = client.get("/v1/subscriptions", headers=_as(provider, "readers", **claims))
    assert (answer.status_code, problem_code(answer)) == (401, "token-wrong")
    assert told in answer.json()["detail"]
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_clock_of_the_issuer_may_differ(client: httpx.Client, provider: Provider) -> None:
    now = time.time()
    for claims, status in (
        ({"exp": now - 30}, 200),
        ({"exp": now - 90}, 401),
        ({"nbf": now + 30}, 200),
        ({"nbf": now + 200}, 401),
        ({"aud": ["another", "kindcast"]}, 200),
    ):
        assert client.get("/v1/subscriptions", headers=_as(provider, "readers", **claims)).status_code == status, claims


def test_forged_tokens_are_refused(client: httpx.Client, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public key as a secret, keys and addresses that the token brings itself, other bytes, and what is none."""
    good = provider.token(team="default", realm_access={"roles": ["operations"]})
    assert client.get("/v1/subscriptions", headers=_bearer(good)).status_code == 200
    monkeypatch.setattr(identity_provider, "FETCH_SECONDS", LONG)
    body = {"iss": provider.issuer, "aud": "kindcast", "sub": "eve", "exp": time.time() + 99, "team": "default"}
    body["realm_access"] = {"roles": ["operations"]}
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = _packed({"alg": "HS256", "kid": "rsa", "typ": "JWT"}) + "." + _packed(body)
    signature = hmac.digest(public, confused.encode(), hashlib.sha256)
    before = list(provider.fetched)
    brought = {"jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/x", "kid": "rsa"}
    head, payload, signed = good.split(".")
    forged = [
        f"{confused}.{_text(signature)}",
        jwt.encode(body, OTHER_RSA, algorithm="RS256", headers=brought),
        f"{head}.{_packed(body)}.{signed}",
        f"{head}.{payload}.",
        f"{_packed({'alg': 'none'})}.{payload}.",
        f"{_packed({'alg': ['RS256'], 'kid': {'a': 1}})}.{payload}.{signed}",
        f"{_packed({'alg': 'RS256', 'kid': 'rsa', 'crit': ['exp2'], 'exp2': 1})}.{payload}.{signed}",
        f"{_text(b'[' * 3_000)}.{payload}.{signed}",
        f"{_text(b'{}')}..",
        "a.b.c",
        "..",
        "kindcast_0123456789abcdef_",
        good + "x" * 20_000,
    ]
    for token in forged:
        answer = client.get("/v1/subscriptions", headers=_bearer(token))
        assert (answer.status_code, problem_code(answer)) == (401, "token-wrong"), token[:80]
    assert provider.fetched == before
    assert client.get("/v1/subscriptions", headers=_bearer(good)).status_code == 200


def _packed(value: Any) -> str:
    return _text(json.dumps(value).encode())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


# ── the issuer's keys ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_are_fetched_seldom_and_rotate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tokens with unknown keys make no fetch; a new key is used after the pause, an old one no more."""
    monkeypatch.setattr(identity_provider, "FETCH_SECONDS", LONG)
    with running_provider() as provider, running_application(tmp_path, **_settings(provider)) as client:
        assert client.get("/v1/subscriptions", headers=_as(provider, "readers")).status_code == 200
        assert provider.fetched == ["/.well-known/openid-configuration", "/keys"]
        for number in range(300):
            unknown = _as(provider, "readers", key=OTHER_EC, algorithm="ES256", kid=f"unknown-{number}")
            assert client.get("/v1/subscriptions", headers=unknown).status_code == 401
        assert len(provider.fetched) == 2
        provider.keys.clear()
        provider.publish("next", OTHER_RSA)
        new = _as(provider, "readers", key=OTHER_RSA, kid="next")
        assert client.get("/v1/subscriptions", headers=new).status_code == 401
        monkeypatch.setattr(identity_provider, "FETCH_SECONDS", 0.0)
        assert client.get("/v1/subscriptions", headers=new).status_code == 200
        assert client.get("/v1/subscriptions", headers=_as(provider, "readers")).status_code == 401
        # In the background, with the keys from before meanwhile, and also while the issuer does not answer.
        monkeypatch.setattr(identity_provider, "FRESH_SECONDS", 0.0)
        provider.keys.clear()
        provider.publish("rsa", RSA_KEY)
        until(lambda: client.get("/v1/subscriptions", headers=new).status_code == 401)
        provider.status = 500
        assert client.get("/v1/subscriptions", headers=_as(provider, "readers")).status_code == 200
        monkeypatch.setattr(identity_provider, "STALE_SECONDS", 0.0)
        answer = client.get("/v1/subscriptions", headers=_as(provider, "readers"))
        assert (answer.status_code, problem_code(answer)) == (503, "identity-provider-unavailable")


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"status": 404}, 503),
        ({"status": 302}, 503),
        ({"discovery": {"issuer": "https://another.example", "jwks_uri": "{issuer}/keys"}}, 503),
        ({"discovery": {"issuer": "{issuer}", "jwks_uri": "http://192.0.2.1/keys"}}, 503),
        ({"discovery": {"issuer": "{issuer}", "jwks_uri": "file:///etc/passwd"}}, 503),
        ({"discovery": {"issuer": "{issuer}", "jwks_uri": "http://127.0.0.1:99999/keys"}}, 503),
        ({"discovery": {"issuer": "{issuer}"}}, 503),
        ({"answers": {"/.well-known/openid-configuration": NESTED}}, 503),
        ({"answers": {"/keys": NESTED}}, 503),
        ({"keys": [RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True) | {"kid": "rsa"}]}, 401),
        ({"answers": {"/keys": b"x" * (1 << 20)}}, 503),
        ({"answers": {"/keys": b"[]"}}, 503),
        ({"answers": {"/keys": b'{"keys": 7}'}}, 503),
        ({"answers": {"/keys": b'{"keys": [null, 1, {}, {"kty": "oct", "k": "eA", "kid": "rsa"}]}'}}, 401),
        ({"answers": {"/keys": b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": "!", "e": []}]}'}}, 401),
        ({"answers": {"/keys": b'{"keys": [{"kty": "EC", "kid": "rsa", "alg": "RS256"}]}'}}, 401),
    ],
)
def test_a_provider_that_answers_nonsense(
    wrong: dict[str, Any], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives nobody access, and the server goes on."""
    monkeypatch.setattr(identity_provider, "FETCH_SECONDS", LONG)
    with running_provider() as provider:
        for name, value in wrong.items():
            if name == "discovery":
                value = {key: text.replace("{issuer}", provider.issuer) for key, text in value.items()}
            setattr(provider, name, value)
        with running_application(tmp_path, **_settings(provider)) as client:
            assert client.get("/v1/subscriptions", headers=_as(provider, "readers")).status_code == status
            assert client.get("/v1/subscriptions", headers=_as(provider, "readers")).status_code == status
            assert len(provider.fetched) <= 2
            assert client.get("/healthz").status_code == 200


def test_small_keys_are_refused(tmp_path: Path) -> None:
    with running_provider() as provider, running_application(tmp_path, **_settings(provider)) as client:
        provider.publish("small", SMALL_RSA)
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            headers = _as(provider, "readers", key=SMALL_RSA, kid="small")
        assert problem_code(client.get("/v1/subscriptions", headers=headers)) == "token-wrong"


def test_a_stream_ends_with_its_token(provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    clock = SimpleNamespace(time=lambda: time.time() + ahead[0], monotonic=time.monotonic)
    monkeypatch.setattr(access, "time", clock)
    with running_app(tmp_path, **_settings(provider)) as url, httpx.Client() as client:
        made = client.post(
            f"{url}/v1/subscriptions", json={"expression": "a exists"}, headers=_as(provider, "readers")
        ).json()
        path = f"{url}/v1/subscriptions/{made['id']}/stream"
        with client.stream("GET", path, headers=_as(provider, "readers"), timeout=60) as answer:
            assert answer.status_code == 200
            ahead[0] = 1_000.0
            begun = time.monotonic()
            for _ in answer.iter_bytes():
                assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_issuer": "http://issuer.example"},
        {"oidc_issuer": "issuer.example"},
        {"oidc_audience": None},
        {"oidc_audience": ""},
        {"oidc_roles": {}},
        {"oidc_roles": {"x": "king"}},
    ],
)
def test_settings_that_are_not_whole_are_refused(wrong: dict[str, Any]) -> None:
    good = {"oidc_issuer": "https://issuer.example", "oidc_audience": "kindcast", "oidc_roles": {"x": "admin"}}
    assert Settings(**good).needs_keys
    with pytest.raises(ValidationError, match="oidc_"):
        Settings(**(good | wrong))


def test_malformed_key_of_the_provider_takes_no_other_key_away() -> None:
    """Whatever stands in its key set."""
    good = {"kty": "EC", "kid": "a"}
    odd: list[Any] = [{"kty": ["RSA"]}, {"kty": {}}, {"kty": None}, {}, 7, None, "EC", {"kty": "EC", "use": ["sig"]}]
    assert identity_provider._usable([*odd, good]) == (good,)


def test_body_whose_token_expires_meanwhile_is_refused(provider: Provider, tmp_path: Path) -> None:
    """A body may arrive slowly, for hours."""
    with running_app(tmp_path, **_settings(provider, oidc_leeway_seconds=0)) as address:
        mine = _as(provider, "events", exp=int(time.time()) + 3) | {"Content-Type": "text/turtle"}

        def parts() -> Iterator[bytes]:
            yield b"<http://x.org/a> "
            time.sleep(4.0)
            yield b"<http://x.org/p> 1 ."

        answer = httpx.post(f"{address}/v1/events", content=parts(), headers=mine, timeout=30.0)
        assert (answer.status_code, problem_code(answer)) == (401, "token-wrong")
