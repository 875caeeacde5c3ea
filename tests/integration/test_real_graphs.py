"""The example documents of ONE Record and of NGSI-LD data models are read without loss, says the oracle."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

from kindcast import Matcher, Vocabulary
from kindcast.semantic.events.linked_data.compiled import CompiledContexts
from kindcast.semantic.events.linked_data.reader import DEEPEST, DOCUMENT_VALUES, GraphReader, unfolded
from kindcast.semantic.events.linked_data.reference import Expander
from kindcast.semantic.flatten import EventLimits, flatten
from kindcast.semantic.model import Resource, TypedText
from tests.harness.graph_trees import shown
from tests.oracle.linked_data import Item, Thing, event_of, items_of

ENVIRONMENT = (
    "https://raw.githubusercontent.com/smart-data-models/dataModel.Environment/master/context.jsonld",
    "https://smart-data-models.github.io/dataModel.Environment/context.jsonld",
)
ELSEWHERE = (
    "https://smart-data-models.github.io/dataModel.Transportation/context.jsonld",
    "https://fiware.github.io/data-models/context.jsonld",
)
"""Contexts that the data does not hold: here they have the terms of the other one."""

DESCRIBED_TWICE = ["LogisticsEvents_list.json", "MultipleEventsResponse_example2.json"]
"""Documents that say something of one node at two places: PyLD reads them."""


def test_every_example_document_is_read_as_its_expanded_form_says(shared_data: Path) -> None:
    """Every value of every document stands under its path of properties, and nothing else does."""
    folder = shared_data / "jsonld"
    environment = json.loads((folder / "ngsi-ld" / "environment-context.jsonld").read_text("utf-8"))
    contexts = {**Vocabulary().contexts, **dict.fromkeys(ENVIRONMENT, environment)}
    contexts |= dict.fromkeys(ELSEWHERE, environment)
    reader = GraphReader(contexts, EventLimits())
    expander = Expander(contexts)
    compiled = CompiledContexts(lambda: expander, EventLimits(), DOCUMENT_VALUES, DEEPEST, ())
    handed_over = []
    documents = [*folder.glob("onerecord/examples/*.json"), *folder.glob("ngsi-ld/[A-Z]*.jsonld")]
    assert len(documents) == 76
    values = 0
    for file in documents:
        document = json.loads(file.read_text("utf-8"))
        graph = reader.graph(document, "application/ld+json")
        (root,) = graph.roots
        tree = unfolded(graph, root, EventLimits())
        trees = compiled.trees(document)
        if trees is None:
            handed_over.append(file.name)
        else:
            assert [shown(each) for _, each in trees] == [shown(tree)], file.name
        read = {
            (name, _published(found.scalar))
            for name, all_found in flatten(tree, EventLimits()).scalars.items()
            for found in all_found
        }
        told = {(_name(item), _value(item.value)) for item in items_of(event_of(document, contexts))}
        assert read == told, file.name
        values += len(told)
    assert values > 1_000
    assert sorted(handed_over) == DESCRIBED_TWICE


def _name(item: Item) -> str:
    return ".".join(each if each.startswith("@") else f"<{each}>" for each in item.path)


def _value(value: Any) -> Any:
    if isinstance(value, Thing):
        return ("node", value.iri, value.types)
    return type(value).__name__, value


def _published(scalar: Any) -> Any:
    if isinstance(scalar, Resource):
        return ("node", scalar.iri, scalar.types)
    return ("str", scalar.text) if isinstance(scalar, TypedText) else (type(scalar).__name__, scalar)


def test_every_object_property_of_one_record_takes_the_iri_of_a_logistics_object(shared_data: Path) -> None:
    """By local name, IRI and CURIE, in both versions, with the code lists beside them."""
    folder = shared_data / "jsonld" / "onerecord"
    instance = "https://1r.example.com/logistics-objects/957e"
    for version, count in (("2025-07", 320), ("2026-07", 328)):
        vocabulary = Vocabulary.from_files(
            folder / f"IATA-1R-DM-{version}.ttl.gz", folder / "IATA-1R-CL-2026-07.ttl.gz"
        )
        with gzip.open(folder / f"IATA-1R-DM-{version}.ttl.gz", "rt", encoding="utf-8") as file:
            found = re.findall(r"^(?:cargo)?:(\w+) rdf:type owl:ObjectProperty", file.read(), re.MULTILINE)
        assert len(found) == count
        matcher = Matcher(vocabulary)
        for name in found:
            for spelt in (name, f"<https://onerecord.iata.org/ns/cargo#{name}>", f"cargo:{name}"):
                matcher.add(spelt, f'{spelt} = "{instance}"')
        name = found[0]
        graph = {"@context": {"cargo": "https://onerecord.iata.org/ns/cargo#"}, f"cargo:{name}": {"@id": instance}}
        spelt = {name, f"<https://onerecord.iata.org/ns/cargo#{name}>", f"cargo:{name}"}
        assert {each.subscription for each in matcher.match(graph)} == spelt
