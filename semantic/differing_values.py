"""Which published values may be read otherwise under another vocabulary: names that moved, and words that changed.

What is the same in both vocabularies is not looked at: a value whose names, labels and place are untouched reads the
same, whatever its subscribers ask. What comes out is a little more than what really differs, never less.

    names   declared, dropped, with other parents, classes, equivalences or exact matches … and all beneath them
    words   labels that come, go or change hands; local names; entries of the user's table of synonyms
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from index.clause import ConceptId
from semantic.ontology import ConceptRecord, Ontology
from semantic.ontology.names import local_name
from semantic.vocabulary import Vocabulary

__all__ = ["beneath", "differing_values"]


def differing_values(before: Vocabulary, after: Vocabulary) -> frozenset[str]:
    """IRIs and words whose reading may differ. Linear in the ontologies."""
    touched: set[str] = set()
    words = {word for word, _ in before.synonyms.items() ^ after.synonyms.items()}
    for vocabulary in (before, after):
        words |= {vocabulary.synonyms[word] for word in words & vocabulary.synonyms.keys()}
    above: set[str] = set()
    forwarding = False
    for was, now in _pairs(before.ontologies, after.ontologies):
        forwarding |= _compare_records(was, now, touched, words)
        _compare_pairs(was, now, touched, above)
    touched |= _matched_otherwise(before, after)
    related = [_related(vocabulary) for vocabulary in (before, after)]
    if related[0] != related[1]:
        touched |= {low for _, low, _ in related[0] ^ related[1]}
    for vocabulary, edges in zip((before, after), related, strict=True):
        starts = {vocabulary.concept(iri) for iri in touched}
        touched |= _names(vocabulary, _below(vocabulary, {each for each in starts if each is not None}, edges))
        if forwarding:
            # Replacements may be chains, so that another end of one is another reading of all its names.
            touched |= {record.iri for each in vocabulary.ontologies for record in _records(each) if record.deprecated}
        else:
            touched |= _led_to(vocabulary, touched)
    for vocabulary in (before, after):
        # A name, its labels and its local name may each be read in another way: a replacement, or a name shared.
        for ontology in vocabulary.ontologies:
            words |= {word for each in _records(ontology) if each.iri in touched for word in _words(each)}
        words |= vocabulary.synonyms.keys()  # whose root may be written in any way that resolves
        # Who becomes known brings along the names it is merged with.
        known = {vocabulary.concept(iri) for iri in above}
        above |= _names(vocabulary, (each for each in known if each is not None))
    words |= {local_name(iri) for iri in touched | above} - {""}
    return frozenset(touched | above | words)


def beneath(vocabulary: Vocabulary, concept: ConceptId | None) -> set[str]:
    """All names of a concept and of what is beneath it or in a relation to that; none of None."""
    if concept is None:
        return set()
    return _names(vocabulary, _below(vocabulary, {concept}, _related(vocabulary)))


def _pairs(before: Iterable[Ontology], after: Iterable[Ontology]) -> Iterator[tuple[Ontology, Ontology]]:
    """The ontologies that differ, by name; an empty one stands for one that is not there."""
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is not now:
            yield was or Ontology(name=name), now or Ontology(name=name)


def _compare_records(was: Ontology, now: Ontology, touched: set[str], words: set[str]) -> bool:
    """Note the names that come or go, and all words that do; whether a deprecation or a replacement changed."""
    old = {record.iri: record for record in _records(was)}
    forwarding = False
    for record in _records(now):
        other = old.pop(record.iri, None)
        if other == record:
            continue
        words |= {word for word, _ in _readings(record) ^ (_readings(other) if other is not None else set())}
        if other is None:
            touched.add(record.iri)
        elif other.kind != record.kind:
            words |= _words(record)  # a class goes before individuals of the same name
        forwarding |= _forwards(record) != (_forwards(other) if other is not None else None)
    for record in old.values():
        touched.add(record.iri)
        words |= _words(record)
        forwarding |= _forwards(record) is not None
    return forwarding


def _compare_pairs(was: Ontology, now: Ontology, touched: set[str], above: set[str]) -> None:
    """Note the lower names of pairs that come or go, and both of an equivalence; apart from them the upper names, which
    may be known by such a pair alone, but take nothing beneath them along."""
    for low, high in (*(set(was.edges) ^ set(now.edges)), *(set(was.types) ^ set(now.types))):
        touched.add(low)
        above.add(high)
    for pair in set(was.equivalences) ^ set(now.equivalences):
        touched.update(pair)


def _matched_otherwise(before: Vocabulary, after: Vocabulary) -> set[str]:
    """The names of concepts that exact matches merge in one of the vocabularies, and not so in the other: a pair or a
    scheme more may undo the merges of a whole component."""
    touched: set[str] = set()
    for name in {name for each in (before, after) for one in each.ontologies for pair in one.matches for name in pair}:
        was, now = (
            _names(each, [concept]) if (concept := each.concept(name)) is not None else set()
            for each in (before, after)
        )
        if was != now:
            touched |= was | now
    return touched


def _records(ontology: Ontology) -> Iterator[ConceptRecord]:
    yield from ontology.concepts
    yield from ontology.remarks


def _forwards(record: ConceptRecord) -> tuple[str, ...] | None:
    return record.replaced_by if record.deprecated else None


def _led_to(vocabulary: Vocabulary, touched: set[str]) -> set[str]:
    """The deprecated names whose replacements lead to `touched`: where these are read otherwise, so are those."""
    leading: defaultdict[str, list[str]] = defaultdict(list)
    for ontology in vocabulary.ontologies:
        for record in _records(ontology):
            for target in _forwards(record) or ():
                leading[target].append(record.iri)
    found: set[str] = set()
    waiting = list(touched)
    while waiting:
        new = [iri for iri in leading.get(waiting.pop(), ()) if iri not in found]
        found.update(new)
        waiting += new
    return found


def _words(record: ConceptRecord) -> set[str]:
    """Every text that may lead to the concept."""
    return {text for text, _ in _readings(record)}


def _readings(record: ConceptRecord) -> set[tuple[str, str]]:
    """The same with what leads: a preferred label goes before a synonym. A local name goes with its record."""
    labels = {
        *(("preferred", text) for text, _ in record.preferred),
        *(("synonym", text) for text, _ in record.synonyms),
    }
    return {(text, how) for how, text in labels} | {(local_name(record.iri), "local name")} - {("", "local name")}


def _related(vocabulary: Vocabulary) -> set[tuple[str, str, str]]:
    """Every edge of a relation, by names: (relation, from, to). A walk over all concepts, where there are relations."""
    relations = vocabulary.relations
    concepts = map(ConceptId, range(len(vocabulary) if relations else 0))
    return {
        (relation, vocabulary.iri(concept), vocabulary.iri(end))
        for concept in concepts
        for relation, end in relations.next(concept)
    }


def _below(
    vocabulary: Vocabulary, starts: set[ConceptId], edges: Iterable[tuple[str, str, str]] = ()
) -> set[ConceptId]:
    """`starts` and everything beneath any of them, or in a relation to it."""
    lower: defaultdict[str, list[str]] = defaultdict(list)
    for _, low, high in edges:
        lower[high].append(low)
    seen, waiting = set(starts), list(starts)
    while waiting:
        concept = waiting.pop()
        related = (vocabulary.concept(iri) for iri in lower.get(vocabulary.iri(concept), ())) if lower else ()
        for child in (*vocabulary.children(concept), *related):
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return seen


def _names(vocabulary: Vocabulary, concepts: Iterable[ConceptId]) -> set[str]:
    return {iri for concept in concepts for iri in vocabulary.iris(concept)}
