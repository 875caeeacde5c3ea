"""The application factory: the broker, the delivery and the routes, put together.

SKELETON - the seam to the delivery is fixed:

    from server.delivery import router, running_delivery

    running_delivery(broker: Broker, settings: Settings)    an async context manager: on entry it hooks into
        `broker.listeners` and starts the outbox on the running loop, on exit it ends streams and webhooks. What it yields
        is `request.app.state.delivery`; the broker is `request.app.state.broker`, the settings `request.app.state.settings`.
    router: APIRouter    pull, acknowledge, stream; paths begin with /v1/subscriptions/{id}/…

Errors: raise those of `server.errors` (UnknownSubscription, TicketMissing, TicketWrong …) or
`server.error_responses.Problem(status, code, detail, title=…)`, which becomes application/problem+json.
Tickets: `server.security.tickets.check_ticket(ticket: str | None, ticket_hash: str)` raises TicketMissing, TicketWrong.
"""

from fastapi import FastAPI

from server.settings import Settings

__all__ = ["create_app"]


def create_app(settings: Settings) -> FastAPI:
    """The application; its lifespan starts and stops broker and delivery."""
    raise AssertionError
