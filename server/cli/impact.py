"""Rendering of impact reports: what a change of the vocabulary does to the subscriptions."""

from typing import Annotated, Any

import typer

from kindcast.server.cli import output

__all__ = ["DryRunOption", "show_impact"]

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what it would do.")]

SHOWN = 10
"""Entries of a list that are shown; --json has more."""


def show_impact(told: dict[str, Any]) -> None:
    """Which concepts, attributes, units and words change, for how many subscriptions, and which lose their meaning."""
    impact, subscriptions = told.get("impact"), told.get("subscriptions")
    if impact is None or subscriptions is None:
        output.paragraph("nothing changes: it is in force already")
        return
    changed, live = subscriptions["changed"], impact["subscriptions"]["live"]
    output.paragraph(f"{changed} of {live} subscriptions {'mean' if changed != 1 else 'means'} something else")
    for part in ("terms", "attributes", "units", "words", "texts", "pairs"):
        listed = impact[part]["listed"][:SHOWN]
        for each in listed:
            output.paragraph(f"  {_told(part, each)}")
        if impact[part]["count"] > len(listed):
            output.paragraph(f"  … and {impact[part]['count'] - len(listed)} more {part}", "dim")
    flagged, back = (subscriptions.get(key, {"count": 0}) for key in ("flagged", "unflagged"))
    if flagged["count"]:
        shown = ", ".join(flagged["listed"][:SHOWN])
        use = "1 subscription uses" if flagged["count"] == 1 else f"{flagged['count']} subscriptions use"
        output.warn(f"{use} something that is removed; kept, and flagged until it returns: {shown}")
    if back["count"]:
        are = "1 subscription is" if back["count"] == 1 else f"{back['count']} subscriptions are"
        output.hint(f"{are} no longer flagged: what was removed is back")


def _told(part: str, each: dict[str, Any]) -> str:
    """One thing that changes on one line."""
    if part == "terms":
        subject = f"{each.get('relation', {}).get('label') or each['test']} {each['label'] or each['iri']}"
    else:
        subject = str(each.get("attribute") or each.get("unit") or each.get("word") or each.get("predicate"))
    said: list[str] = []
    if each.get("gone"):
        said.append("gone")
    if each.get("back"):
        said.append("back")
    if "replaced" in each:
        said.append(f"read as {each['replaced']['to']}")
    for key, word in (("gains", "gains"), ("loses", "loses")):
        if each.get(key, {}).get("count"):
            names = [concept["label"] or concept["iri"] for concept in each[key]["concepts"]]
            said.append(f"{word} {_some(names, each[key]['count'])}")
    for key, word in (("words", "gains the words"), ("words_gone", "loses the words")):
        if key in each:
            said.append(f"{word} {_some(each[key]['listed'], each[key]['count'])}")
    if "declaration" in each:
        said.append(f"declared as {_fields(each['declaration']['to'])}, was {_fields(each['declaration']['from'])}")
    if "measure" in each:
        said.append("measured otherwise")
    if "compared" in each:
        said.append(f"compares {each['compared']}")
    number = each["subscriptions"]
    return f"{subject}: {', '.join(said)} ({number} subscription{'s' if number != 1 else ''})"


def _some(names: list[str], count: int) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if count <= SHOWN else f"{shown} and {count - SHOWN} more"


def _fields(declaration: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in declaration.items()) if declaration else "nothing"
