"""The client of the HTTP API, for programs: `Client` for ordinary code, `AsyncClient` for asyncio.

    with Client("http://127.0.0.1:8080") as kindcast:
        kindcast.put_ontology("shop", Path("shop.ttl").read_bytes(), content_type="text/turtle")
        cheap = kindcast.subscribe("target isa Computer and price <= 400")
        kindcast.publish({"target": "laptop", "price": 350})
        for message in kindcast.listen(cheap["id"]):
            ...
            kindcast.ack(cheap["id"], message["cursor"])

Tickets of subscriptions made here are remembered; for others give `ticket=`, or put them into `tickets`.
"""

from typing import TYPE_CHECKING

from kindcast.semantic.on_demand import on_demand

if TYPE_CHECKING:
    from kindcast.server.client.calls import NoAnswerInTime, ServerUnreachable
    from kindcast.server.client.clients import AsyncClient, Client
    from kindcast.server.client.problem_error import ProblemError, UnexpectedAnswer, UnusableArgument

__all__ = [
    "AsyncClient",
    "Client",
    "NoAnswerInTime",
    "ProblemError",
    "ServerUnreachable",
    "UnexpectedAnswer",
    "UnusableArgument",
]

__getattr__ = on_demand(
    __name__,
    {
        "kindcast.server.client.calls": ("NoAnswerInTime", "ServerUnreachable"),
        "kindcast.server.client.clients": ("AsyncClient", "Client"),
        "kindcast.server.client.problem_error": ("ProblemError", "UnexpectedAnswer", "UnusableArgument"),
    },
)
