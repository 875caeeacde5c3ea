"""How matches reach subscribers: pull, stream, webhook, over one cursor. See README.md for the map."""

from server.api.deliveries import router
from server.delivery.service import DeliveryService, running_delivery

__all__ = ["DeliveryService", "router", "running_delivery"]
