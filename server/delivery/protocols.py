"""Delivery protocols: a table from the protocol that a subscription names to the code that checks and sends.

Pull and stream are not here: subscribers fetch those messages themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kindcast.server.delivery.webhook import Delivery, Outcome, WebhookSender, check_protocol
from kindcast.server.settings import Settings

__all__ = ["DEFAULT_PROTOCOL", "PROTOCOLS", "DeliveryProtocol", "Sender"]


class Sender(Protocol):
    """Sends messages by one protocol. It runs on one event loop; `send` may run any number of times at once."""

    async def send(self, delivery: Delivery) -> Outcome:
        """Makes one attempt. Ends within the timeout of the settings and raises nothing but cancellation."""

    async def close(self) -> None:
        """Closes all connections. No attempt may be running."""


@dataclass(frozen=True, slots=True)
class DeliveryProtocol:
    """`check(protocolsettings, sinkcredential)` raises `SinkRefused` when a subscription is created or changed;
    `open_sender` makes the sender of one server."""

    check: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    open_sender: Callable[[Settings], Sender]


def _open_webhooks(settings: Settings) -> Sender:
    return WebhookSender(
        allow_private=settings.allow_private_sinks,
        timeout=settings.webhook_timeout_seconds,
        any_https_port=settings.any_https_port,
    )


DEFAULT_PROTOCOL = "HTTP"
"""The protocol of a subscription that has a sink and names no protocol."""

PROTOCOLS: Mapping[str, DeliveryProtocol] = {"HTTP": DeliveryProtocol(check_protocol, _open_webhooks)}
