"""Texts of Arrow as codes: the same cells, and the same matches, as when each is looked at by itself."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, Vocabulary
from kindcast.semantic.events.leaf_columns import coded
from kindcast.semantic.ontology import read

SHOP = b"""@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Sofa a rdfs:Class .
"""
TEXTS = ("laptop", "Sofa", "Computer", "", "80 degF", "nothing of ours", None)
PIECES = st.lists(st.lists(st.sampled_from(TEXTS), max_size=9), min_size=1, max_size=4)


def matcher() -> Matcher:
    found = Matcher(Vocabulary([read(SHOP, format="turtle")]))
    found.add("computers", "target isa Computer")
    found.add("sofas", "target = Sofa")
    found.add("none", "target missing")
    found.add("warm", "target > 20 degC")
    return found


def column(pieces: list[list[str | None]], kind: str) -> Any:
    chunks = [pa.array(piece, pa.string()) for piece in pieces]
    if kind == "codes":  # each chunk has a dictionary of its own
        return pa.chunked_array([chunk.dictionary_encode() for chunk in chunks])
    return pa.chunked_array(chunks, pa.string())


@given(PIECES, st.sampled_from(["texts", "codes"]), st.integers(0, 5))
def test_coded_column_has_the_cells_that_it_had(pieces: list[list[str | None]], kind: str, start: int) -> None:
    """Each cell, in parts too, whatever the chunks; a text that no row has any more is not among the distinct ones."""
    whole = column([piece * 5 for piece in pieces], kind).slice(start)
    cells, found = whole.to_pylist(), coded(whole)
    if found is not None:
        assert [found[row] for row in range(len(found))] == cells
        assert set(found.distinct) == set(cells) - {None}
        part = found.part(1, 4)
        assert [part[row] for row in range(len(part))] == cells[1:4]


@given(PIECES, st.sampled_from(["texts", "codes"]))
def test_match_table_of_coded_texts_is_that_of_lists(pieces: list[list[str | None]], kind: str) -> None:
    """The same subscriptions for each row, and the same the second time, when all cells are known."""
    asked = matcher()
    whole = column([piece * 5 for piece in pieces], kind)
    rows = asked.match_table({"target": whole.to_pylist()})
    for _ in range(2):
        table = asked.match_table(pa.table({"target": whole}))
        assert table.offsets.tolist() == rows.offsets.tolist()
        for row in range(len(whole)):
            span = slice(table.offsets[row], table.offsets[row + 1])
            assert sorted(table.slots[span]) == sorted(rows.slots[span])


def test_coded_column_whose_texts_hardly_repeat_is_left_alone() -> None:
    """Codes would cost more than they save."""
    assert coded(pa.chunked_array([pa.array([f"v{n}" for n in range(100)])])) is None
    assert coded(pa.chunked_array([pa.array([1, 2, 3])])) is None
    assert coded(pa.chunked_array([], pa.string())) is None
