"""The steps of the demonstration, in order: vocabulary, subscriptions, events, deliveries and explanations."""

import json
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.cli import explanation
from kindcast.server.cli.demo_server import running_server
from kindcast.server.cli.demo_story import CHEAPER, JOHNS_OFFER, OFFERS, PAPER_WISH, VOCABULARY, WISHES, Wish
from kindcast.server.client import Client, ProblemError

__all__ = ["perform"]


# Those who wish, listening: one stream of server-sent events each, in a thread of its own.


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that came: to whom, for which event, and when by `time.monotonic`."""

    wish: Wish
    sequence: str
    data: dict[str, Any]
    at: float


class Audience:
    """Subscribes for every wish and listens until the server is gone. `ids` maps who → subscription."""

    def __init__(self, server: str, wishes: tuple[Wish, ...]) -> None:
        self.ids: dict[str, str] = {}
        self.canonical: dict[str, str] = {}
        self._server = server
        self._came: queue.Queue[Delivered] = queue.Queue()
        with Client(server) as client:
            for wish in wishes:
                created = client.subscribe(wish.text)
                self.ids[wish.who], self.canonical[wish.who] = created["id"], created["canonical"]
        for wish in wishes:
            # Daemons: they wait in a read that only the end of the server would end.
            threading.Thread(target=self._listen, args=(wish,), daemon=True).start()

    def wait_for(self, count: int, seconds: float) -> list[Delivered]:
        """The next `count` messages; fewer when they do not come in time."""
        deadline = time.monotonic() + seconds
        came: list[Delivered] = []
        while len(came) < count:
            try:
                came.append(self._came.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return came

    def _listen(self, wish: Wish) -> None:
        try:
            with Client(self._server) as client:
                for message in client.listen(self.ids[wish.who], after="0"):
                    event = message["event"]
                    self._came.put(Delivered(wish, message["cursor"], event.get("data", {}), time.monotonic()))
        except ProblemError:
            return  # the demonstration is over


# ── performance ───────────────────────────────────────────────────────────────────────────────────────────────────────

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
