"""Delivery of matches to subscribers: pull, stream and webhook, over one cursor. See README.md for the map."""

from kindcast.server.delivery.service import DeliveryService, running_delivery

__all__ = ["DeliveryService", "running_delivery"]
