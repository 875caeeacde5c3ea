"""The settings, each with its default value and its reason.

Precedence: flags of `kindcast serve` over KINDCAST_* variables over the TOML file over the defaults. The TOML file is
named by `--config` or KINDCAST_CONFIG; its keys are the names below.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_origin
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kindcast.semantic.planner import PLANNERS, UnknownPlanner
from kindcast.server.security.keys import Role
from kindcast.server.security.limits import bad_limit

__all__ = ["SNAPSHOT", "Settings", "is_loopback", "sqlite_url", "unknown_variables"]

MIB = 1 << 20
SNAPSHOT = "kindcast.index"
"""The name of the folder of the snapshot, in a data folder without a SQLite database."""
OTHER_VARIABLES = frozenset(
    f"KINDCAST_{name}"
    for name in (
        *("BROKER", "CA", "CONFIG", "KEY", "RETRY_SECONDS", "SERVER", "SINK_PASSWORD", "TENANT", "TICKET"),
        "TEST_DATA",
    )
)
"""Variables of the command line and of the tests."""
_KUBERNETES = re.compile(
    r"KINDCAST_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

_ORIGIN = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class Settings(BaseSettings):
    """The settings of a server. They are immutable. Raises `pydantic.ValidationError`, which names each bad setting."""

    model_config = SettingsConfigDict(
        env_prefix="KINDCAST_", extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )
    config_file: ClassVar[Path | None] = None

    # ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    data: Path = Path("kindcast-data")
    """The folder of the database and the lock. It is created if it is missing."""
    cache: Path | None = None
    """The folder of the compiled kernels of the index; default: beside the package, or in the user's cache folder. A
    server that can write to neither compiles them at every start."""
    database: str | None = None
    """SQLAlchemy URL; default: SQLite in the data folder."""
    tls_certificate: Path | None = None
    """PEM file of the server's certificate and the intermediate certificates. With it the server speaks only https. It
    is read again when it changes."""
    tls_key: Path | None = None
    """PEM file of the private key, without a passphrase; default: in the same file."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may have, in addition to those of this machine's loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages of these origins (`https://shop.example`) may use the server (CORS), in addition to its own."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted."""

    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """The lowest level that `kindcast serve` logs."""
    log_format: Literal["text", "json"] = "text"
    """A log record is a line of text, or a JSON object on one line."""

    # ── who may do what ─────────────────────────────────────────────────────────────────────────────────────────────
    oidc_issuer: str | None = None
    """The issuer of the identity provider (OpenID Connect) whose tokens are accepted besides keys, an https URL."""
    oidc_audience: str | None = None
    """What a token's `aud` must be or contain."""
    oidc_roles: dict[str, Role | Literal["admin-of-all-tenants"]] = {}
    """Maps the values of the claim `oidc_roles_claim` to roles. Other values give no role."""
    oidc_roles_claim: str = "roles"
    """A claim, or the path to it, such as `realm_access.roles`: a list of texts, or one text."""
    oidc_tenant_claim: str | None = None
    """The claim that names the tenant; None: tokens act in the tenant `default`."""
    oidc_ca: Path | None = None
    """PEM file of the certificate authorities for the issuer; default: those of the system."""
    oidc_leeway_seconds: Annotated[float, Field(ge=0.0, le=600.0)] = 60.0
    """The difference that the issuer's clock may have."""
    key_limits: dict[str, float] = {}
    """The default limits of each key, and the limits of each subject of an identity provider: `requests_per_second`,
    `events_per_second`, `bytes_per_second`, `connections`, `subscriptions`, `matches_per_event`."""
    tenant_limits: dict[str, float] = {}
    """The default limits of each tenant."""
    max_tenant_keys: PositiveInt = 1_000
    """The maximum number of keys of a tenant up to which its own administrators can make more. All keys are in memory,
    and each change reads all."""
    max_open_tenants: PositiveInt = 256
    """The maximum number of tenants with a matcher in memory and an open database. Above it, an idle one is closed. On
    PostgreSQL the default is at most an eighth of its `max_connections`."""
    tenant_idle_seconds: PositiveFloat = 900.0
    """A tenant that was unused for this long and has no due work is closed until it is used again."""
    session_seconds: PositiveFloat = 12 * 3_600.0
    """The time after which a browser must sign in again."""
    audit_retention_seconds: PositiveFloat = 366 * 86_400.0
    """Entries of the audit log older than this are deleted."""
    audit_entries: PositiveInt = 1_000_000
    """The maximum number of entries; the newest of each tenant are kept. Entries of refused requests may be a tenth of
    that, so that they do not displace the others."""
    open_behind_proxy: bool = False
    """Whether a server without keys answers requests that a proxy forwarded. Then anybody who reaches the proxy may do
    everything."""

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────
    max_connections: PositiveInt = 4_096
    """At the limit the longest unfinished connection is closed; a new one is not refused."""
    max_connections_per_address: PositiveInt = 1_024
    max_header_bytes: PositiveInt = 64 << 10
    """The maximum size of a request's first line and headers together."""
    max_headers: PositiveInt = 128
    header_seconds: PositiveFloat = 10.0
    """From the connection, or the first byte of the next request, to the end of the headers."""
    body_seconds: PositiveFloat = 30.0
    """The time for a body, in addition to the time for its size."""
    min_body_bytes_per_second: PositiveInt = 16 << 10
    """The minimum rate of a body: it may take the time at this rate, plus `body_seconds`."""
    write_seconds: PositiveFloat = 60.0
    """A client that reads nothing of its answer for this long is disconnected."""
    max_reading_bytes: PositiveInt = 256 * MIB
    """The maximum size of all bodies that are being read or executed. Above it, the longest unfinished one is refused.
    Large ontologies may together take half of it."""
    max_writing_bytes: PositiveInt = 256 * MIB
    """The maximum size of all answers that wait for clients that do not read them. Above it, such a client is
    disconnected."""

    # ── what a request may hold ─────────────────────────────────────────────────────────────────────────────────────
    max_body_bytes: PositiveInt = 16 * MIB
    max_ontology_bytes: PositiveInt = 128 * MIB
    """The maximum size of an uploaded ontology. The Gene Ontology has about 120 MiB as RDF/XML."""
    max_queue_ontologies: PositiveInt = 16
    """The maximum number of uploads that are read or wait. Each holds its document in memory."""
    max_events_per_request: PositiveInt = 10_000
    max_graph_values_per_request: PositiveInt = 500_000
    """The maximum number of JSON values or RDF statements in all linked-data documents of a request. Documents beyond
    it are refused."""
    max_graph_seconds_per_request: PositiveFloat = 5.0
    """The processor time for the documents of a request that no compiled context reads. Documents beyond it are
    refused."""
    max_json_depth: Annotated[int, Field(ge=1, le=500)] = 64
    max_subscription_bytes: PositiveInt = MIB // 4
    """The maximum size of a stored subscription. It is in memory, and is compiled again with every vocabulary."""
    max_subscriptions: PositiveInt = 1_000_000

    # ── what reading an ontology may take ───────────────────────────────────────────────────────────────────────────
    ontology_readers: PositiveInt = 2
    """The number of documents that are read at the same time, each in its own process."""
    ontology_memory_bytes: Annotated[int, Field(ge=256 * MIB)] = 4_096 * MIB
    """The maximum address space. An interpreter with the libraries for reading takes some 200 MiB."""
    ontology_cpu_seconds: PositiveFloat = 300.0
    ontology_seconds: PositiveFloat = 600.0
    java: str | None = None
    """The Java runtime for `reason=owl`: a path, or a name on PATH; default: that of JAVA_HOME, else `java`. Nothing
    else needs Java."""
    reasoner_heap_bytes: Annotated[int, Field(ge=64 * MIB)] = 2_048 * MIB
    """The size of Java's heap. Java uses up to 3 GiB of addresses in addition."""
    reasoner_seconds: PositiveFloat = 300.0
    """The time limit for a classification. The size of an ontology does not show how long it takes."""

    # ── how long ────────────────────────────────────────────────────────────────────────────────────────────────────
    default_ttl_seconds: PositiveFloat = 30 * 86_400.0
    """The time to live of a subscription without one."""
    max_ttl_seconds: PositiveFloat = 366 * 86_400.0
    grace_seconds: PositiveFloat = 7 * 86_400.0
    """An expired subscription can be renewed for this long; then it is purged."""
    retention_seconds: PositiveFloat = 7 * 86_400.0
    """Events older than this are deleted, delivered or not."""
    sweep_seconds: PositiveFloat = 60.0
    """The interval of the searches for old events and expired subscriptions. Matching stops exactly at the end time."""

    # ── the broker ──────────────────────────────────────────────────────────────────────────────────────────────────
    engine: str = "fused"
    index_bytes: PositiveInt | None = None
    """The maximum memory of the index with its caches. Above it, new subscriptions are refused. During a merge, and
    while another vocabulary is prepared, there is a second index in memory."""
    snapshot: Path | None = None
    """The folder of the snapshot of compiled subscriptions for a quick start; default: the name of the SQLite file with
    `.index`, else `kindcast.index` in the data folder."""
    snapshot_changes: NonNegativeInt = 10_000
    """The number of added or removed subscriptions after which the snapshot is written in an idle moment (and when the
    server stops). 0: it is neither written nor used."""
    max_queue_events: PositiveInt = 100_000
    """The maximum number of events that wait for the broker's thread. Above it, publishing is answered 503, so that the
    memory is not filled."""
    max_group_events: PositiveInt = 10_000
    """The maximum number of events that are committed together. A larger group gains nothing and makes clients wait
    longer."""
    max_matches_per_event: PositiveInt | None = None
    """The maximum number of subscriptions that an event may match; an event with more matches is refused. None: no
    limit."""
    max_match_seconds: PositiveFloat = 30.0
    """The time limit of a request that matches events without publishing them."""
    max_command_seconds: PositiveFloat = 30.0
    """`/readyz` answers 503 if a command has waited longer for the broker's thread, or is executed for longer."""
    max_shard_lag_seconds: PositiveFloat = 60.0
    """`/readyz` answers 503 if the oldest event that a shard of this server has not matched is older."""
    check_after_seconds: PositiveFloat = 10.0
    """The time between a start and the background check of all stored data."""
    reader_connections: PositiveInt = 8
    busy_timeout_seconds: PositiveFloat = 10.0

    lease_seconds: PositiveFloat = 5.0
    """On PostgreSQL: how long a server without heartbeats keeps its leases, before other servers take them."""
    shards: Annotated[int, Field(ge=1, le=1_024)] | None = None
    """On PostgreSQL: the number of shards of the subscriptions. Each is matched separately from publishing, at one of
    the servers. It must be the same at all servers, and from the first start on. None: every server matches all
    subscriptions, and the answer to a publisher waits for that."""

    # ── delivery ────────────────────────────────────────────────────────────────────────────────────────────────────
    allow_private_sinks: bool = False
    """Whether webhooks may use this machine and its private networks. By default subscriptions must not reach them."""
    broker_sink_hosts: tuple[str, ...] = ()
    """Hosts, or `host:port`, of message brokers that sinks may use with any address. Kafka needs this."""
    any_https_port: bool = False
    """Whether webhooks over https may use other ports than 443."""
    webhook_origin: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9.:-]*$")] = ""
    """The name with which a sink is asked for its consent, with OPTIONS, before the first message; empty: sinks are not
    asked."""
    webhook_timeout_seconds: PositiveFloat = 20.0
    webhook_delays_seconds: tuple[float, ...] = (
        *(5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0),
    )
    """The seconds to wait after the first, second, … failure in a row. After the last, the subscription is disabled."""
    webhook_jitter: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    webhook_concurrency: PositiveInt = 256
    webhook_concurrency_per_endpoint: PositiveInt = 8
    stream_ping_seconds: PositiveFloat = 15.0
    websocket_pong_seconds: PositiveFloat = 20.0
    """A WebSocket client that does not answer a ping for this long is disconnected."""
    max_wait_seconds: PositiveFloat = 30.0
    """The longest wait of a long poll."""

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────
    plugins: bool = True
    """Whether operators of installed packages are loaded. They run in separate processes."""
    operator_data: Path | None = None
    """The folder with data of built-in operators: `regions.geojson`, `tables/*.csv`, `windows.json`."""
    operator_priors: Path | None = None
    """`priors.json` of `kindcast spark learn`: the expected cost and selectivity of operators that were never called
    here."""
    operator_timeout_seconds: PositiveFloat = 10.0
    """The time limit for a call of an operator without its own limit."""
    linked_data: Literal["auto", "graphs", "plain"] = "auto"
    """How events in JSON-LD are read: as `graphs` or as `plain` JSON. `auto` continues the practice of the data folder:
    `graphs`, except in folders of versions that read plain JSON."""
    unknown_contexts: Literal["refuse", "plain"] = "refuse"
    """An event with the content type of JSON-LD that needs an unknown context is refused, or read as `plain` JSON."""
    planner: str = "greedy"
    """How the order of operator calls is chosen: `greedy`, `sub_order`, `sequential` or `naive`. The matches are the
    same."""
    operator_delays_seconds: tuple[PositiveFloat, ...] = (
        *(1.0, 5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0),
    )
    """The seconds to wait after the first, second, … try without a decision. After the last, the candidate is given
    up."""
    max_operators: PositiveInt = 1_000
    """The maximum number of registered remote operators."""

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────
    max_jobs: PositiveInt = 100
    """The maximum number of ended jobs that are kept."""
    job_seconds: PositiveFloat = 3_600.0
    """How long ended jobs are kept."""
    backfill_events: PositiveInt = 100_000
    """The maximum number of stored events that are read for a new subscription with `start_at`."""
    backfill_matches: PositiveInt = 10_000
    """The maximum number of stored events that it gets."""
    backtest_events: PositiveInt = 200_000
    """The maximum number of events of a backtest in the server. A larger one is a Spark job in a separate process."""

    @field_validator("key_limits", "tenant_limits")
    @classmethod
    def _are_limits(cls, limits: dict[str, float]) -> dict[str, float]:
        if (wrong := bad_limit(limits)) is not None:
            raise ValueError(wrong)
        return limits

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for each in proxies:
            ipaddress.ip_network(each)
        return proxies

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """Requires origins, and writes them as browsers do, without the usual port: they are compared as texts."""
        for each in origins:
            if not _ORIGIN.fullmatch(each):
                raise ValueError(
                    f"{each!r} is not an origin: write scheme, host and port, as in https://shop.example:8443"
                )
        return tuple(
            each.removesuffix(":443" if each.startswith("https:") else ":80") for each in map(str.lower, origins)
        )

    @field_validator("data", mode="before")
    @classmethod
    def _is_folder(cls, data: object) -> object:
        """Refuses an empty text. It is probably a variable of a shell that is not set, and would mean the current
        folder."""
        if isinstance(data, str) and not data.strip():
            raise ValueError("the path is empty: write the path of a folder, . for the current one")
        return data

    @field_validator("database")
    @classmethod
    def _is_url(cls, database: str | None) -> str | None:
        """Refuses what cannot be parsed, without showing it: it may contain a password. Refuses an empty text: it is
        probably a variable of a shell that is not set, and SQLite would begin with nothing."""
        if database is not None and not database.strip():
            raise ValueError("the URL is empty: write the URL of a database, or leave out the setting to use SQLite")
        try:
            if database is not None:
                make_url(database)
        except (ArgumentError, ValueError):
            raise ValueError(
                "this is not the URL of a database: write postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME, with"
                " %40 for @, %3A for : and %2F for / in the password"
            ) from None
        return database

    @field_validator("planner")
    @classmethod
    def _known_planner(cls, planner: str) -> str:
        if planner not in PLANNERS:
            raise ValueError(str(UnknownPlanner(planner)))
        return planner

    @model_validator(mode="after")
    def _only_fused_counts(self) -> "Settings":
        """Refuses a limit that the engine does not enforce."""
        if self.index_bytes is not None and self.engine != "fused":
            raise ValueError(f"index_bytes is supported by the engine fused only, but engine is {self.engine!r}")
        return self

    @model_validator(mode="after")
    def _shards_can_be(self) -> "Settings":
        """Refuses settings that shards do not support."""
        if self.shards is None:
            return self
        if self.is_sqlite:
            raise ValueError("shards needs a PostgreSQL database: set database to its URL")
        limits = {**self.key_limits, **self.tenant_limits}
        if self.max_matches_per_event is not None or "matches_per_event" in limits:
            raise ValueError("with shards an event is accepted before it is matched: set no limit of matches per event")
        if self.index_bytes is not None:
            raise ValueError("with shards a subscription is accepted before it is indexed: leave out index_bytes")
        return self

    @model_validator(mode="after")
    def _key_has_certificate(self) -> "Settings":
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_key is set without tls_certificate")
        return self

    @model_validator(mode="after")
    def _issuer_is_whole(self) -> "Settings":
        if self.oidc_issuer is None:
            return self
        parts = urlsplit(self.oidc_issuer)
        here = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if not here and parts.scheme != "https":
            raise ValueError("oidc_issuer must be an https address; http is for this machine only")
        if not self.oidc_audience or not self.oidc_roles:
            raise ValueError("oidc_issuer needs oidc_audience and oidc_roles as well")
        return self

    @property
    def needs_keys(self) -> bool:
        """Whether requests always need a key or a token: others than this machine's users reach the server, or there is
        an identity provider."""
        return not is_loopback(self.host) or self.oidc_issuer is not None

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite; else it is PostgreSQL."""
        return make_url(self.database_url).get_backend_name() == "sqlite"

    @property
    def database_url(self) -> str:
        """The database, or the default one in the data folder."""
        return self.database or sqlite_url(self.data / "kindcast.db")

    @property
    def snapshot_folder(self) -> Path:
        """The folder of the snapshot of compiled subscriptions."""
        url = make_url(self.database_url)
        if self.snapshot is None and url.get_backend_name() == "sqlite" and url.database:
            return Path(f"{url.database}.index")
        return self.snapshot or self.data / SNAPSHOT

    @classmethod
    def load(cls, config: Path | None = None, **flags: Any) -> "Settings":
        """Returns the settings from flags (None = not given), environment, the TOML file `config`, and defaults.

        Raises OSError if the file cannot be read, `tomllib.TOMLDecodeError`, UnicodeDecodeError, and
        `pydantic.ValidationError`.
        """
        if config is None and os.environ.get("KINDCAST_CONFIG"):
            config = Path(os.environ["KINDCAST_CONFIG"])
        if config is not None and config.is_dir():
            raise IsADirectoryError(f"{config} is a folder and not a settings file")
        if config is not None and not config.exists():
            raise FileNotFoundError(f"there is no settings file {config}")
        named = type("Settings", (cls,), {"config_file": config, "__doc__": cls.__doc__, "__module__": cls.__module__})
        settings: Settings = named(**{name: value for name, value in flags.items() if value is not None})
        return settings

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources in the order of precedence."""
        environment = _Environment(settings_cls)
        if cls.config_file is None:
            return init_settings, environment
        return init_settings, environment, InitSettingsSource(settings_cls, _content(cls.config_file))


def _content(config: Path) -> dict[str, Any]:
    """Returns the content of a TOML file. Some editors begin it with a byte order mark, which TOML does not allow."""
    return tomllib.loads(config.read_bytes().decode("utf-8-sig"))


class _Environment(EnvSettingsSource):
    """The KINDCAST_* variables. A list is JSON or has commas. Variables that Kubernetes sets are ignored."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        is_foreign = isinstance(value, str) and _is_of_kubernetes(f"KINDCAST_{field_name.upper()}", value)
        return (None, key, is_complex) if is_foreign else (value, key, is_complex)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        is_list = isinstance(value, str) and get_origin(field.annotation) is tuple
        if is_list and not value.lstrip().startswith("["):
            return [each.strip() for each in value.split(",") if each.strip()]
        return super().decode_complex_value(field_name, field, value)


def sqlite_url(path: Path) -> str:
    """Returns the URL of a SQLite file. In a URL, some characters of a path would mean something else.

    >>> sqlite_url(Path("50%25?/kindcast.db"))
    'sqlite:///50%2525%3F/kindcast.db'
    """
    return URL.create("sqlite", database=str(path)).render_as_string()


def unknown_variables(environment: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Returns the KINDCAST_* variables that are not used, each with the most similar one that is used. Variables that
    Kubernetes sets for a service whose name begins with kindcast are left out.

    >>> unknown_variables({"KINDCAST_PROT": "80", "KINDCAST_PORT": "80", "KINDCAST_SERVICE_HOST": "10.0.0.1"})
    [('KINDCAST_PROT', 'KINDCAST_PORT')]
    """
    known = {f"KINDCAST_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    found = []
    for name, value in sorted(environment.items()):
        if name.startswith("KINDCAST_") and name not in known and not _is_of_kubernetes(name, value):
            near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
            found.append((name, near[0] if near else None))
    return found


def _is_of_kubernetes(name: str, value: str) -> bool:
    if _KUBERNETES.fullmatch(name) is None:
        return False
    return name != "KINDCAST_PORT" or "://" in value


@lru_cache(maxsize=64)  # every request needs it
def is_loopback(host: str) -> bool:
    """Whether a server that binds to this host can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
