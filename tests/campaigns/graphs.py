"""Pairs of subscription and graph, the graph written in different ways, decided by the oracle and by the product.

    world ─▶ expressions × graphs ─▶ oracle, once a graph
                         each graph as published, expanded, compacted, framed, flattened, N-Quads, Turtle
                                  └▶ match, match_batch, HTTP, Spark

Worlds and expressions are those of `agreement`, which also runs the ways; a disagreement is kept in the same form.
"""

import argparse
from typing import Any

from tests.campaigns.agreement import Drawing, drawn, named, remembering, run_worlds
from tests.campaigns.campaign import Outcome, Told
from tests.harness.graph_forms import forms
from tests.oracle import matching
from tests.strategies import EX, graph_events, graph_expressions, worlds

__all__ = ["ABOUT", "WAYS", "add_options", "drawing", "run"]

ABOUT = "generated pairs of subscription and graph agree with the oracle, however the graph is written"
WAYS = ("match", "match_batch", "http", "spark")
"""Tables hold no graphs: archives of them are matched by Spark."""
OTHER = {"p": EX, "weight": EX + "weight"}
"""A context under which every graph is compacted."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sizes; a world has subscriptions × graphs pairs, and each graph some five forms."""
    parser.add_argument("--pairs", type=int, default=1_000_000, help="pairs in all, each counted once")
    parser.add_argument("--subscriptions", type=int, default=400, help="of each world")
    parser.add_argument("--events", type=int, default=100, help="graphs of each world")
    parser.add_argument("--together", type=int, default=5, help="worlds in one Spark job")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of %(default)s")
    parser.add_argument("--world", type=int, help="this world alone, with nothing kept")


def drawing(number: int, first: int, subscriptions: int, published: int) -> Drawing:
    """World `number` of the run with seed `first`, with every form of its graphs."""
    own = first * 1_000_003 + number
    world = remembering(drawn(worlds(), 5, own)[0])
    asked = {f"s{place}": each for place, each in enumerate(drawn(graph_expressions(), subscriptions, own + 1))}
    written, expected, names = [], [], []
    for event in drawn(graph_events(), published, own + 2):
        told = matching(asked, named(event, 0), world)
        for name, form in {"published": event, **forms(event, OTHER)}.items():
            written.append(named(form, len(written)))
            expected.append(told)
            names.append(name)
    return Drawing(number, world, asked, written, expected, names)


def run(options: Any, told: Told) -> Outcome:
    """As many worlds as make so many pairs."""
    return run_worlds("graphs", options, told, drawing)
