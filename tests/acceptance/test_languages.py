"""A subscription means the same in every language of its ontology."""

from pathlib import Path

import pytest

from kindcast import Matcher, Vocabulary


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("unesco-thesaurus.ttl.gz", ("Music", "Музыка", "Musique", "Música")),
        ("pizza.owl", ("CheeseTopping", "CoberturaDeQueijo")),
    ],
)
def test_subscription_in_every_language_is_the_same_subscription(
    shared_data: Path, file: str, words: tuple[str, ...]
) -> None:
    """Each word compiles to the same concept, and catches what is published in any language, and what is beneath."""
    vocabulary = Vocabulary.from_files(shared_data / "ontologies" / file)
    matcher = Matcher(vocabulary)
    canonical = {matcher.add(word, f'subject isa "{word}"').canonical for word in words}
    assert len(canonical) == 1
    (concept,) = vocabulary.readings(words[0])
    beneath = vocabulary.iri(vocabulary.children(concept)[0])
    for published in (*words, beneath):
        assert {match.subscription for match in matcher.match({"subject": published})} == set(words)
