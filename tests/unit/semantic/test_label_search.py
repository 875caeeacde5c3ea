"""Labels that contain a text, compared with a plain definition."""

import random
from itertools import permutations

import pytest

from kindcast.semantic import Vocabulary
from kindcast.semantic.ontology.records import ConceptRecord
from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.semantic.vocabulary import labels
from kindcast.semantic.vocabulary.labels import LabelIndex, NearNames

RECORDS = [
    ConceptRecord(iri=f"http://x/{number}", preferred=((label, "en"),))
    for number, label in enumerate(
        [
            "aaa",
            "a a a",
            "baa aab",
            "Laptop bag",
            "laptop",
            "Gaming laptop",
            "top",
            "电脑",
            "台式电脑",
            "",
            "x aa",
            "aa x",
        ]
    )
]


@pytest.mark.parametrize("seed", range(3))
def test_containing_orders_as_its_definition_says(seed: int) -> None:
    """Equal labels, those that begin with the text, those where a word does, the others; shorter ones first."""
    index = LabelIndex(RECORDS)
    labels = [index._text(number) for number in range(len(index._record))]
    draw = random.Random(seed)
    for _ in range(200):
        text = "".join(draw.choices("aapt lob电", k=draw.randint(1, 3)))
        wanted = text.strip()

        def rank(label: str, wanted: str = wanted) -> tuple[int, int, str]:
            others = (label != wanted, not label.startswith(wanted), f" {wanted}" not in label)
            return next((place for place, differs in enumerate(others) if not differs), 3), len(label.encode()), label

        expected = sorted((rank(label), number) for number, label in enumerate(labels) if wanted in label)
        assert list(index.containing(text)) == [index._label(number) for _, number in expected], text


def test_search_of_a_short_text_has_as_many_as_asked_for() -> None:
    """One letter is in most labels: the best come, each concept once; without a label, the nearest ones do."""
    vocabulary = Vocabulary.from_files(shipped("shop"))
    found = vocabulary.search("e", limit=7)
    assert len({each["iri"] for each in found}) == 7
    assert vocabulary.search("Computer", lang="zh", limit=3) != []


def test_near_names_compares_a_name_with_few_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers wait for the notes: those about 200 new names beside 5,000 known ones took seconds."""
    known = NearNames("".join(each) for each in permutations("weighty"))
    compared: list[str] = []

    def counted(one: str, other: str, most: int) -> int:
        compared.append(one)
        return most + 1

    monkeypatch.setattr(labels, "_distance", counted)
    assert known.nearest("weightz.weightx.weightv") is None
    assert 0 < len(compared) <= labels.MOST_COMPARED <= 100
