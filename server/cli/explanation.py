"""Rendering of explanations: why an event matched or did not, as a tree of clauses, predicates and values."""

import json
from typing import Any

from rich.text import Text
from rich.tree import Tree

from kindcast.server.cli import output

__all__ = ["draw", "show"]


def show(explanation: dict[str, Any]) -> None:
    """Prints the tree, then the summary."""
    output.screen().print(draw(explanation))
    output.paragraph(explanation["summary"], "bold")
    for note in explanation.get("notes", ()):
        output.warn(f"{note['attribute']}: {note['detail']}" if note.get("attribute") else str(note["detail"]))


def draw(explanation: dict[str, Any]) -> Tree:
    """The explanation as a tree; each line starts with yes or no."""
    tree = Tree(_verdict(explanation["matches"], "match" if explanation["matches"] else "no match"))
    clauses = explanation["clauses"]
    for clause in clauses:
        # One clause needs no branch of its own.
        branch = tree if len(clauses) == 1 else tree.add(_verdict(clause["matches"], "this alternative"))
        for predicate in clause["predicates"]:
            leaf = branch.add(_verdict(predicate["verdict"], str(predicate["text"])))
            for value in predicate["values"]:
                leaf.add(_value(value))
            if not predicate["values"]:
                leaf.add(Text(str(predicate["reason"]), style="dim"))
    return tree


def _value(value: dict[str, Any]) -> Text:
    published = value["published"]
    said = published if isinstance(published, str) else json.dumps(published, ensure_ascii=False)
    text = Text(f"published {said}")
    meant, *above = value.get("path") or [published]
    if meant != published:
        text.append("  means  ", style="dim")
        text.append(meant, style="cyan")
    if above:
        text.append("  a kind of  ", style="dim")
        text.append(" → ".join(above), style="cyan")
    return text


def _verdict(verdict: bool, told: str) -> Text:
    return Text.assemble(("yes  ", "bold green") if verdict else ("no   ", "bold red"), told)
