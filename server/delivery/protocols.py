"""Delivery protocols: a table from the protocol that a subscription names to the code that checks and sends.

Pull and stream are not here: subscribers fetch those messages themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kindcast.server.connectors.broker_url import SCHEMES
from kindcast.server.connectors.broker_url import Protocol as BrokerName
from kindcast.server.delivery.broker_sinks import BROKER_PROTOCOLS, BrokerSender, check_settings, check_url
from kindcast.server.delivery.webhook import Delivery, Outcome, WebhookSender, check_protocol
from kindcast.server.security.egress import SinkRefused, check_sink
from kindcast.server.settings import Settings

__all__ = ["DEFAULT_PROTOCOL", "PROTOCOLS", "DeliveryProtocol", "Sender"]


class Sender(Protocol):
    """Sends messages by one protocol. It runs on one event loop; `send` may run any number of times at once."""

    async def send(self, delivery: Delivery) -> Outcome:
        """Makes one attempt. Ends within the timeout of the settings and raises nothing except cancellation."""

    def ready_at(self, sink: str) -> float:
        """Returns when the sink accepts the next message, in seconds since 1970; 0 if it does now."""

    async def close(self) -> None:
        """Closes all connections. No attempt may be running."""


@dataclass(frozen=True, slots=True)
class DeliveryProtocol:
    """The functions of one protocol. `check(protocolsettings, sinkcredential)` and `check_url(sink, settings)` raise
    `SinkRefused` when a subscription is created or changed. `open_sender` makes the sender of one server. `settings`
    are the members of protocolsettings. `bare`: messages are always CloudEvents, without a message around them."""

    check: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    check_url: Callable[[str, Settings], None]
    open_sender: Callable[[Settings], Sender]
    settings: frozenset[str]
    bare: bool = False


def _open_webhooks(settings: Settings) -> Sender:
    return WebhookSender(
        allow_private=settings.allow_private_sinks,
        timeout=settings.webhook_timeout_seconds,
        any_https_port=settings.any_https_port,
        origin=settings.webhook_origin,
    )


def _check_webhook_url(sink: str, settings: Settings) -> None:
    scheme = sink.partition("://")[0].lower()
    if scheme in SCHEMES and SCHEMES[scheme].protocol in BROKER_PROTOCOLS:
        raise SinkRefused(f"a sink that begins with {scheme}:// needs the protocol {SCHEMES[scheme].protocol}")
    check_sink(sink, allow_private=settings.allow_private_sinks, any_https_port=settings.any_https_port)


def _broker(name: BrokerName) -> DeliveryProtocol:
    def check_url_of(sink: str, settings: Settings) -> None:
        check_url(name, sink, allow_private=settings.allow_private_sinks, allowed_hosts=settings.broker_sink_hosts)

    def open_sender(settings: Settings) -> Sender:
        return BrokerSender(
            name,
            allow_private=settings.allow_private_sinks,
            allowed_hosts=settings.broker_sink_hosts,
            timeout=settings.webhook_timeout_seconds,
        )

    known = BROKER_PROTOCOLS[name]
    members = frozenset({known.place, "mode"}) | known.settings
    return DeliveryProtocol(partial(check_settings, name), check_url_of, open_sender, members, bare=True)


DEFAULT_PROTOCOL = "HTTP"
"""The protocol of a subscription that has a sink and names no protocol."""

PROTOCOLS: Mapping[str, DeliveryProtocol] = {
    "HTTP": DeliveryProtocol(
        check_protocol, _check_webhook_url, _open_webhooks, frozenset({"method", "headers", "format", "batch"})
    ),
    **{name: _broker(name) for name in BROKER_PROTOCOLS},
}
