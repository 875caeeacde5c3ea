"""URLs of message brokers, their topics, and the TLS context of their connections."""

import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

__all__ = [
    "SCHEMES",
    "BrokerUrl",
    "Protocol",
    "Topic",
    "WrongUrl",
    "check_place",
    "in_source",
    "parse_topic",
    "parse_url",
    "tls_for",
]

Protocol = Literal["MQTT", "NATS", "AMQP", "KAFKA", "REDIS"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme of URLs: its protocol, its default port, and whether it uses TLS."""

    protocol: Protocol
    port: int
    tls: bool = False


SCHEMES: Mapping[str, Scheme] = {
    "mqtt": Scheme("MQTT", 1883),
    "mqtts": Scheme("MQTT", 8883, tls=True),
    "nats": Scheme("NATS", 4222),
    "tls": Scheme("NATS", 4222, tls=True),
    "amqp": Scheme("AMQP", 5672),
    "amqps": Scheme("AMQP", 5671, tls=True),
    "kafka": Scheme("KAFKA", 9092),
    "kafkas": Scheme("KAFKA", 9093, tls=True),
    "redis": Scheme("REDIS", 6379),
    "rediss": Scheme("REDIS", 6379, tls=True),
}


class WrongUrl(ValueError):
    """The text is no URL of a broker. The message contains no password."""


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """A parsed URL. `hosts` has several entries only for Kafka. `path` is the virtual host of AMQP or the database
    number of Redis. `repr` and `shown` contain no password."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    path: str = ""

    @property
    def protocol(self) -> Protocol:
        return SCHEMES[self.scheme].protocol

    @property
    def tls(self) -> bool:
        return SCHEMES[self.scheme].tls

    @property
    def shown(self) -> str:
        """The URL without user and password. It may be shown, and is the beginning of the `source` of events."""
        path = f"/{in_source(self.path)}" if self.path else ""
        return f"{self.scheme}://{self.netloc}{path}"

    @property
    def netloc(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


def in_source(name: str) -> str:
    """Encodes what the path of a URI cannot have, in the name of a topic or virtual host: `source` is a URI reference.

    >>> in_source("home/bath room/temp"), in_source("offers:new/a+b?")
    ('home/bath%20room/temp', 'offers:new/a+b?')
    """
    return quote(name, safe="/:@!$&'()*+,;=?")


_ENCODE = "write such characters in a user or password as %2F for /, %40 for @, %3F for ?, %23 for # and %25 for %"


def parse_url(url: str) -> BrokerUrl:
    """Parses a URL. Raises `WrongUrl`.

    >>> parse_url("mqtt://ann:secret@example.org").shown
    'mqtt://example.org:1883'
    """
    scheme, mark, rest = url.partition("://")
    known = SCHEMES.get(scheme.lower())
    if not mark or known is None:
        raise WrongUrl(f"the URL of a broker must begin with {', '.join(f'{each}://' for each in SCHEMES)}")
    netloc, slash, path = rest.partition("/")
    if "@" in path:  # else a part of the password would be taken for the path, and shown
        raise WrongUrl(f"the path of a broker's URL must not contain @: {_ENCODE}")
    credentials, at, places = netloc.rpartition("@")
    user, colon, password = credentials.partition(":")
    hosts = tuple(_place(place, known) for place in places.split(","))
    if len(hosts) > 1 and known.protocol != "KAFKA":
        raise WrongUrl(f"a URL of {known.protocol} must name exactly one host")
    if "?" in rest or "#" in rest:
        raise WrongUrl(f"the URL of a broker must not have a query or a fragment: {_ENCODE}")
    if known.protocol == "REDIS" and not re.fullmatch(r"[0-9]{0,4}", path):
        raise WrongUrl("the path of a Redis URL must be the number of a database")
    return BrokerUrl(
        scheme.lower(),
        hosts,
        unquote(user) if at else None,
        unquote(password) if colon else None,
        unquote(path) if slash else "",
    )


def _place(place: str, known: Scheme) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WrongUrl(f"the host or the port of the broker's URL cannot be read: {_ENCODE}") from None
    if not host or parts.path:
        raise WrongUrl("the broker's URL names no host")
    return host, known.port if port is None else port


_LEVEL = re.compile(r"\{([a-z][a-z0-9]{0,19})\}")
_SEPARATOR = {"MQTT": "/", "NATS": "."}
_ONE_LEVEL = {"MQTT": "+", "NATS": "*"}
RESERVED = frozenset(
    {"id", "source", "type", "time", "subject", "specversion", "dataschema", "datacontenttype", "data", "topic"}
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to read, possibly with wildcards of the broker. `names` are the names of levels, by their index in the
    topic of a message. `is_pattern`: the filter is a regular expression."""

    filter: str
    separator: str = "/"
    names: Mapping[int, str] = field(default_factory=dict)
    is_pattern: bool = False

    def attributes(self, topic: str) -> dict[str, str]:
        """Returns the named levels of the topic of a message.

        >>> parse_topic("home/{room}/temp", "MQTT").attributes("home/Küche/temp")
        {'room': 'Küche'}
        """
        levels = topic.split(self.separator)
        return {name: levels[number] for number, name in self.names.items() if number < len(levels)}

    def holds(self, topic: str) -> bool:
        """Whether the filter accepts this topic."""
        if self.is_pattern:
            with suppress(re.error):  # the broker's own expressions may differ
                return re.match(self.filter, topic) is not None
            return False
        levels = topic.split(self.separator)
        wanted = self.filter.split(self.separator)[_skipped(self.filter) :]
        for number, level in enumerate(wanted):
            if level in ("#", ">"):
                return True
            if number >= len(levels) or level not in ("+", "*", levels[number]):
                return False
        return len(levels) == len(wanted)


def _skipped(filter: str) -> int:
    """Returns how many levels precede the filter itself: `$share` and the name of a shared subscription of MQTT."""
    return 2 if filter.startswith("$share/") else 0


def parse_topic(text: str, protocol: Protocol) -> Topic:
    """Parses a topic. `home/{room}/temp` reads `home/+/temp`, and each event has the level as its attribute `ce.room`.
    Raises `WrongUrl`."""
    if not text:
        raise WrongUrl("a topic must not be empty")
    if protocol == "REDIS" and any(sign in text for sign in "*?[]{}"):
        raise WrongUrl(f"{text}: a stream of Redis needs its full name, without wildcards; --topic may be repeated")
    if protocol not in _SEPARATOR:
        return Topic(text, is_pattern=protocol == "KAFKA" and text.startswith("^"))
    separator = _SEPARATOR[protocol]
    levels, names = text.split(separator), {}
    if protocol == "MQTT" and any("#" in level for level in levels[:-1]):
        raise WrongUrl(f"{text}: # must be the last level of a topic")
    if protocol == "NATS":
        _check_subject(text)
    for number, level in enumerate(levels):
        if found := _LEVEL.fullmatch(level):
            names[number], levels[number] = found[1], _ONE_LEVEL[protocol]
        elif "{" in level or "}" in level:
            raise WrongUrl(
                f"{level} in a topic: a name in braces must be a whole level of lower-case letters and digits"
            )
    wrong = set(names.values()) & RESERVED
    if wrong or len(set(names.values())) != len(names):
        raise WrongUrl(f"the levels of {text} need different names, which must not be {', '.join(sorted(RESERVED))}")
    filter = separator.join(levels)
    return Topic(filter, separator, {number - _skipped(filter): name for number, name in names.items()})


def _check_subject(text: str) -> None:
    if not all(text.split(".")) or any(sign.isspace() for sign in text):
        raise WrongUrl(f"{text}: a subject of NATS needs levels without spaces, separated by dots")


_WILDCARDS = {"MQTT": "+#", "NATS": "*>"}


def check_place(text: str, protocol: Protocol) -> None:
    """Checks the name of a topic, queue or stream to which messages are sent. Raises `WrongUrl`."""
    if not text:
        raise WrongUrl("a topic must not be empty")
    if set(text) & set(_WILDCARDS.get(protocol, "")):
        raise WrongUrl(f"{text}: messages cannot be sent to a topic with wildcards")
    if protocol == "NATS":
        _check_subject(text)


class _NamedContext(ssl.SSLContext):
    """A client context that expects the certificate of `name`."""

    name: str

    def wrap_bio(self, incoming: Any, outgoing: Any, *_: Any, **more: Any) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, **more | {"server_hostname": self.name})

    def wrap_socket(self, sock: Any, *_: Any, **more: Any) -> ssl.SSLSocket:
        """Wraps a socket and does the handshake. If it fails, the socket is closed."""
        wrapped = super().wrap_socket(sock, **more | {"server_hostname": self.name})
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def tls_for(host: str) -> ssl.SSLContext:
    """Returns a context that trusts the system's certificate authorities and expects the certificate of this host."""
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.name = host
    return context
