"""The acts of the demonstration, in order: a vocabulary, wishes, offers and their deliveries, and why."""

import json
import time
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from semantic import Matcher, Vocabulary
from semantic.shipped_vocabularies import shipped
from server.cli import explanation
from server.client import Client
from server.demo.audience import Audience, Delivered
from server.demo.stage import running_server
from server.demo.story import CHEAPER, JOHNS_OFFER, OFFERS, PAPER_WISH, VOCABULARY, WISHES

__all__ = ["perform"]

DELIVERY_SECONDS = 10.0
"""A delivery takes milliseconds; a machine at its limits may take longer, and then we say so."""
MISSED = "台式机"
"""The offer whose match is explained as one that plain strings miss."""


class DeliveryMissing(Exception):
    """A match was decided and did not arrive. The demonstration shows what is; it does not pretend."""


def perform(screen: Console, *, pace: float) -> None:
    """Shows everything on `screen`, pausing `pace` seconds between steps. Raises when anything is not as promised."""
    began = time.monotonic()
    _headline(screen, "A server that understands kinds")
    with running_server() as server, Client(server) as client:
        _say(
            screen,
            f"A server of its own started in {time.monotonic() - began:.1f} s on {server}, with a temporary folder.",
        )
        _load(screen, client)
        audience = _wish(screen, server, pace)
        delivered = _offer(screen, client, audience, pace)
        _compare(screen, delivered)
        _explain(screen, client, audience)
    _what_next(screen)
    _say(screen, f"The server and its data are gone again. All this took {time.monotonic() - began:.0f} s.", "dim")


def _load(screen: Console, client: Client) -> None:
    report = client.put_ontology("shop", shipped(VOCABULARY).read_bytes(), format="turtle")
    tongues = ", ".join(f"{count} labels in {tag}" for tag, count in report["languages"].items() if tag)
    _say(screen, f"{VOCABULARY} is loaded: {report['concepts']} kinds of things, {tongues}.")


def _wish(screen: Console, server: str, pace: float) -> Audience:
    _headline(screen, "Four people say what they want, each in their own words")
    audience = Audience(server, WISHES)
    for wish in WISHES:
        _pause(pace)
        screen.print(Text.assemble((f"{wish.who:>7}  ", "bold magenta"), wish.text))
    return audience


def _offer(screen: Console, client: Client, audience: Audience, pace: float) -> list[Delivered]:
    _headline(screen, "Offers come in as plain JSON; each match arrives by server-sent events")
    delivered: list[Delivered] = []
    for offer in OFFERS:
        _pause(pace)
        screen.print(Text.assemble(("  offer  ", "bold"), json.dumps(offer, ensure_ascii=False)), soft_wrap=True)
        published = time.monotonic()
        answer = client.publish(offer)
        expected = int(answer["events"][0]["matched"])
        came = audience.wait_for(expected, DELIVERY_SECONDS)
        if len(came) < expected:
            raise DeliveryMissing(f"{expected} matches were decided, {len(came)} arrived in {DELIVERY_SECONDS:.0f} s")
        for each in sorted(came, key=lambda one: one.at):
            took = max(each.at - published, 0.0) * 1_000
            screen.print(
                Text.assemble(("      →  ", "green"), (each.wish.who, "bold magenta"), (f"  {took:.0f} ms", "dim"))
            )
        delivered += came
    return delivered


def _compare(screen: Console, delivered: list[Delivered]) -> None:
    """Asks the same of plain strings and numbers: the same matcher with an empty vocabulary."""
    plain = Matcher(Vocabulary.from_ontologies([]))
    for wish in WISHES:
        plain.add(wish.who, wish.plain)
    found = sum(len(plain.match(offer)) for offer in OFFERS)
    _headline(screen, "What plain string comparison would have found")
    _say(
        screen,
        f"{len(OFFERS)} offers gave {len(delivered)} matches. Without a vocabulary one can only ask for the words "
        f"themselves ({PAPER_WISH.plain}, …): then the same offers give {found}.",
    )


def _explain(screen: Console, client: Client, audience: Audience) -> None:
    anna = audience.ids[PAPER_WISH.who]
    for question, offer in (
        (f"Why did {PAPER_WISH.who} get the “{MISSED}”, which her wish does not mention?", _missed_offer()),
        ("Why did she not get John's HP desktop for 450 dollars?", JOHNS_OFFER),
        ("And when John asked for 350?", CHEAPER),
    ):
        _headline(screen, question)
        told = client.explain(offer, anna)
        screen.print(explanation.draw(told))
        _say(screen, told["summary"], "bold")


def _missed_offer() -> dict[str, Any]:
    return next(offer for offer in OFFERS if offer["target"] == MISSED)


def _what_next(screen: Console) -> None:
    _headline(screen, "What to try next")
    for command, does in (
        ("make serve", "a server that stays; its API to try out is at http://127.0.0.1:8080/docs"),
        ("source .venv/bin/activate", "in a second terminal: puts the command kindcast on the path"),
        ("kindcast ontology load shop.ttl", "this vocabulary, or one of yours"),
        ("kindcast listen --to 'target isa Computer'", "wait there for offers"),
        ("""kindcast publish '{"target": "Notebook"}'""", "in a third terminal: make one"),
    ):
        screen.print(Text.assemble("  ", (f"{command:<46}", "cyan"), does), soft_wrap=True)
    _say(screen, "README.md has the five-minute tour, docs/tutorial.md the rest.")


def _headline(screen: Console, text: str) -> None:
    screen.print()
    screen.print(Rule(Text(text, style="bold"), align="left", style="dim"))


def _say(screen: Console, text: str, style: str = "") -> None:
    screen.print(Text(text, style=style))


def _pause(pace: float) -> None:
    if pace > 0:
        time.sleep(pace)
