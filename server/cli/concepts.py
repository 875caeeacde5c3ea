"""The commands `kindcast concept`: find a concept by any of its names, and show its place in the hierarchy."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from kindcast.server.cli import output
from kindcast.server.cli.completion import concepts
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.output import CommandFailed, group, page

__all__ = ["commands"]

commands = group("concept", "Find the concepts of the server's ontologies, in any of their languages.")


@commands.command("find", epilog=page("kindcast concept find Festplatte --lang de"))
def find(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", autocompletion=concepts, help="Part of a label, a synonym or a name.")
    ],
    lang: Annotated[str | None, typer.Option(metavar="TAG", help="Only labels of this language: de, zh …")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, metavar="COUNT", help="The largest number of results.")] = 20,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Search the labels of all concepts."""
    with connected(server) as client:
        answer = client.concepts(words, lang=lang, limit=limit)
    if json:
        output.print_json(answer)
        return
    found = answer["concepts"]
    if not found:
        output.hint(f"Nothing is called {words!r}. Loaded ontologies: kindcast ontology list")
        return
    output.table(("label", "means", "IRI"), [(_hit(each), str(each.get("label", "")), each["iri"]) for each in found])


@commands.command("show", epilog=page("kindcast concept show 'Desktop PC'"))
def show(
    term: Annotated[
        str, typer.Argument(metavar="TERM", autocompletion=concepts, help="A label, a short form, a CURIE or an IRI.")
    ],
    lang: Annotated[str | None, typer.Option(metavar="TAG", help="Labels in this language: de, zh …")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what a term means: its labels, its broader concepts, and the concepts directly below it."""
    with connected(server) as client:
        resolved = client.resolve(term)
        candidates = resolved.get("candidates") or []
        if len(candidates) > 1 and not json:
            output.warn(f"{term!r} is ambiguous; in a subscription, write one of these")
            output.table(("label", "IRI"), [(str(each.get("label", "")), each["iri"]) for each in candidates])
            return
        if not candidates:
            raise CommandFailed(f"no concept is called {term!r}.", f"Look for it: kindcast concept find {term!r}")
        concept = candidates[0]
        ancestors = client.ancestors(concept["iri"])["concepts"]
        children = client.children(concept["iri"])["concepts"]
    if json:
        output.print_json({**concept, "ancestors": ancestors, "children": children})
        return
    _show_concept(concept, ancestors, children, lang)


def _show_concept(
    concept: Mapping[str, Any],
    ancestors: Sequence[Mapping[str, Any]],
    children: Sequence[Mapping[str, Any]],
    lang: str | None,
) -> None:
    output.paragraph(_label(concept, lang), "bold")
    output.paragraph(concept["iri"], "dim")
    if concept.get("definition"):
        output.paragraph(str(concept["definition"]))
    for replaced in concept.get("replaced", ()):
        output.warn(f"{replaced} is deprecated")
    by_language: dict[str, list[str]] = {}
    for label in [*concept.get("labels", ()), *concept.get("synonyms", ())]:
        by_language.setdefault(label.get("lang") or "", []).append(str(label["value"]))
    output.table(("language", "labels and synonyms"), [(lang, ", ".join(words)) for lang, words in by_language.items()])
    tree = Tree(Text("beneath: " + (", ".join(_label(each, lang) for each in ancestors) or "nothing")))
    for child in children:
        tree.add(Text(_label(child, lang)))
    output.screen().print(tree)


def _label(concept: Mapping[str, Any], lang: str | None) -> str:
    """Returns the label in a language if there is one, else the label that the server chose."""
    for label in concept.get("labels", ()) if lang else ():
        if label.get("lang") == lang:
            return str(label["value"])
    return str(concept.get("label", concept["iri"]))


def _hit(found: Mapping[str, Any]) -> str:
    matched = found.get("matched") or found.get("label", "")
    if isinstance(matched, dict):
        tongue = f" ({matched['lang']})" if matched.get("lang") else ""
        return f"{matched['value']}{tongue}"
    return str(matched)
