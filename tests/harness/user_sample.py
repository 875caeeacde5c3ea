"""What a user writes against the public face, and mypy checks from outside the project; no module imports it."""

import asyncio
import sys
from collections.abc import Mapping

from kindcast import (
    AsyncClient,
    Client,
    Event,
    InvalidSubscription,
    Match,
    Matcher,
    MatchTable,
    NoAnswerInTime,
    ProblemError,
    ServerUnreachable,
    Vocabulary,
    explain,
    operator,
)
from kindcast.semantic.shipped_vocabularies import shipped


@operator("cheaper_than_usual")
def cheaper_than_usual(event: Event) -> bool:
    """An operator of one's own."""
    return bool(event.data)


def matched(offer: dict[str, object]) -> list[str]:
    """The library."""
    matcher = Matcher(Vocabulary.from_files("shop.ttl"), operators=[cheaper_than_usual])
    try:
        matcher.add("cheap", "target isa Computer and price <= 400 USD")
    except InvalidSubscription as error:
        return [problem.detail for problem in error.problems]
    found: list[Match] = list(matcher.match(offer))
    return [match.subscription for match in found]


def table(matcher: Matcher, columns: dict[str, list[str]]) -> MatchTable:
    """Many events at once."""
    return matcher.match_table(columns)


def sent(server: str) -> int:
    """The client of a server."""
    try:
        with Client(server) as client:
            client.put_ontology("shop", shipped("shop.ttl").read_bytes(), format="turtle")
            made = client.subscribe("target isa Computer")
            answer = client.publish({"target": "Notebook"})
            for message in client.listen(str(made["id"]), after="0"):
                sys.stdout.write(f"{message['event']}\n")
                break
            return int(answer["events"][0]["matched"] or 0)
    except (ProblemError, NoAnswerInTime, ServerUnreachable) as error:
        sys.stderr.write(f"{error}\n")
        return 0


async def sent_too(server: str) -> Mapping[str, object]:
    """The same in asyncio."""
    async with AsyncClient(server) as client:
        return await client.publish({"target": "Notebook"})


def told(vocabulary: Vocabulary) -> str:
    """Why, and why not."""
    return str(explain(vocabulary, "target isa Computer", Event({"target": "Notebook"}))["summary"])


if __name__ == "__main__":
    assert matched({"target": "Notebook", "price": "350 USD"}) == ["cheap"]
    assert sent(sys.argv[1]) == 1
    assert asyncio.run(sent_too(sys.argv[1]))["accepted"] == 1
