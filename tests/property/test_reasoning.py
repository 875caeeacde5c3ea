"""Reasoning against definitions that share nothing with it.

RDFS: the entailment rules of the W3C's recommendation, applied to triples until nothing new comes. OWL: a completion
algorithm for EL⁺⁺ without nominals (Baader, Brandt, Lutz: Pushing the EL Envelope, IJCAI 2005) over random axioms. And
structure alone against HermiT: it never claims a pair that does not follow.
"""

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic.errors import InconsistentOntology
from kindcast.semantic.ontology import Ontology, read
from kindcast.semantic.ontology.loader import read_with_axioms
from kindcast.semantic.ontology.reasoning import find_java, hermit_classpath, run_hermit

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
SKOS = "http://www.w3.org/2004/02/skos/core#"
TYPE, SUB_CLASS, SUB_PROPERTY = RDF + "type", RDFS + "subClassOf", RDFS + "subPropertyOf"
DOMAIN, RANGE, BROADER = RDFS + "domain", RDFS + "range", SKOS + "broader"

Triple = tuple[str, str, str]
Pairs = set[tuple[str, str]]


def upwards(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The reflexive and transitive closure, by name."""
    above: dict[str, set[str]] = defaultdict(set)
    for low, high in pairs:
        above[low] |= {low, high}
        above[high].add(high)
    changed = True
    while changed:
        changed = False
        for found in above.values():
            more = set().union(*(above[each] for each in found)) - found
            found |= more
            changed = changed or bool(more)
    return dict(above)


def meaning(ontology: Ontology) -> Pairs:
    """Every pair (name, name at or above it) that the records give, individuals by one step to a class."""
    same = [pair for one, other in ontology.equivalences for pair in ((one, other), (other, one))]
    above = upwards([*ontology.edges, *same])
    pairs = {(low, high) for low, highs in above.items() for high in highs}
    return pairs | {(one, high) for one, each in ontology.types for high in above.get(each, {each})}


# ── RDFS ────────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = [f"http://e/{letter}" for letter in "abcdef"]
PROPERTIES = [f"http://e/p{number}" for number in range(4)]
names, properties = st.sampled_from(NAMES), st.sampled_from(PROPERTIES)
triples = st.one_of(
    st.tuples(names, properties, names),
    st.tuples(names, st.sampled_from([TYPE, SUB_CLASS]), names),
    st.tuples(properties, st.sampled_from([DOMAIN, RANGE]), names),
    st.tuples(properties, st.just(SUB_PROPERTY), st.one_of(properties, st.sampled_from([BROADER, TYPE, SUB_CLASS]))),
)


def rdfs_closure(stated: set[Triple]) -> set[Triple]:
    """Rules rdfs2, 3, 5, 7, 9 and 11, naively."""
    found = set(stated)
    while True:
        new: set[Triple] = set()
        for subject, predicate, value in found:
            for other, word, target in found:
                if other == predicate:
                    if word == DOMAIN:
                        new.add((subject, TYPE, target))
                    elif word == RANGE:
                        new.add((value, TYPE, target))
                    elif word == SUB_PROPERTY:
                        new.add((subject, target, value))
                if other == value and word == predicate and word in (SUB_PROPERTY, SUB_CLASS):
                    new.add((subject, word, target))
                if other == value and predicate == TYPE and word == SUB_CLASS:
                    new.add((subject, TYPE, target))
        if new <= found:
            return found
        found |= new


@given(st.sets(triples, max_size=14))
def test_rdfs_finds_what_its_rules_entail(stated: set[Triple]) -> None:
    """Subclasses, broader concepts and types: the same pairs as by the rules of the recommendation."""
    document = "".join(f"<{one}> <{predicate}> <{other}> .\n" for one, predicate, other in sorted(stated))
    found = meaning(read(document.encode(), format="ntriples", reason="rdfs"))
    closure = rdfs_closure(stated)
    edges = {(low, high) for low, word, high in closure if word in (SUB_CLASS, BROADER)}
    above = upwards(edges)
    expected = {(low, high) for low, highs in above.items() for high in highs}
    schema = {
        name
        for name in PROPERTIES
        if any(name in (one, other) for one, word, other in closure if word in (SUB_PROPERTY, DOMAIN, RANGE))
    }
    expected |= {
        (one, high)
        for one, word, each in closure
        if word == TYPE and one not in schema
        for high in above.get(each, {each})
    }
    assert {pair for pair in found if pair[0] != pair[1]} == {pair for pair in expected if pair[0] != pair[1]}


@given(st.sets(triples, max_size=14))
def test_rdfs_says_which_pairs_it_added(stated: set[Triple]) -> None:
    """Exactly what is new among the records is called inferred, and a type only where it did not follow already."""
    document = "".join(f"<{one}> <{predicate}> <{other}> .\n" for one, predicate, other in sorted(stated)).encode()
    plain, reasoned = read(document, format="ntriples"), read(document, format="ntriples", reason="rdfs")
    assert meaning(plain) <= meaning(reasoned)
    types = {*reasoned.types} - {*plain.types}
    same = {*reasoned.equivalences} - {*plain.equivalences}
    assert reasoned.inferred == types | same | ({*reasoned.edges} - {*plain.edges})
    assert types.isdisjoint(meaning(plain))
    assert reasoned.inferred or meaning(plain) == meaning(reasoned)


# ── OWL ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

PREFIXES = """@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
"""
ONTOLOGIES = 25  # random ones, side by side in one document: to start Java costs more than to classify them
SIZE = 12  # classes of one of them

Some = tuple[str, str]
"""A property and a class: ∃r.C."""


class RandomOntology:
    """Axioms in normal form, and the same as Turtle. `left` are A ⊓ B ⊑ C, `right` A ⊑ ∃r.B, `back` ∃r.A ⊑ B."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self.classes = [f"o{number}C{each}" for each in range(SIZE)]
        self.properties = [f"o{number}p{each}" for each in range(3)]
        self.told: Pairs = set()
        self.left: set[tuple[str, str, str]] = set()
        self.right: set[tuple[str, str, str]] = set()
        self.back: set[tuple[str, str, str]] = set()
        self.disjoint: set[tuple[str, str]] = set()
        self.sub_properties: set[tuple[str, str]] = {(self.properties[1], self.properties[0])}
        self.transitive = {self.properties[2]}
        self.domains: set[tuple[str, str]] = set()
        self.turtle = [f":{each} a owl:Class ." for each in self.classes]
        self.turtle += [f":{each} a owl:ObjectProperty ." for each in self.properties]
        self.turtle += [f":{self.properties[1]} rdfs:subPropertyOf :{self.properties[0]} ."]
        self.turtle += [f":{self.properties[2]} a owl:TransitiveProperty ."]
        makers = (self._sub_class, self._some, self._back, self._define, self._define, self._general)
        for _ in range(self._random.randint(10, 22)):
            self._random.choice(makers)()
        for maker in (self._domain, self._disjoint):
            if self._random.random() < 0.5:
                maker()

    def _class(self) -> str:
        return self._random.choice(self.classes)

    def _property(self) -> str:
        return self._random.choice(self.properties)

    def _sub_class(self) -> None:
        low, high = self._class(), self._class()
        self.told.add((low, high))
        self.turtle.append(f":{low} rdfs:subClassOf :{high} .")

    def _some(self) -> None:
        low, property, filler = self._class(), self._property(), self._class()
        self.right.add((low, property, filler))
        self.turtle.append(f":{low} rdfs:subClassOf {some(property, filler)} .")

    def _back(self) -> None:
        property, filler, high = self._property(), self._class(), self._class()
        self.back.add((property, filler, high))
        self.turtle.append(f"{some(property, filler)} rdfs:subClassOf :{high} .")

    def _general(self) -> None:
        one, other, high = self._class(), self._class(), self._class()
        self.left.add((one, other, high))
        self.turtle.append(f"[ a owl:Class ; owl:intersectionOf ( :{one} :{other} ) ] rdfs:subClassOf :{high} .")

    def _define(self) -> None:
        """A ≡ B ⊓ ∃r.C, with a name of its own for the existential."""
        name, genus, property, filler = self._class(), self._class(), self._property(), self._class()
        fresh = f"{name}x{len(self.turtle)}"
        self.told.add((name, genus))
        self.right.add((name, property, filler))
        self.back.add((property, filler, fresh))
        self.left.add((genus, fresh, name))
        self.turtle.append(
            f":{name} owl:equivalentClass [ a owl:Class ; owl:intersectionOf ( :{genus} {some(property, filler)} ) ] ."
        )

    def _domain(self) -> None:
        property, each = self._property(), self._class()
        self.domains.add((property, each))
        self.turtle.append(f":{property} rdfs:domain :{each} .")

    def _disjoint(self) -> None:
        one, other = self._random.sample(self.classes, 2)
        self.disjoint.add((one, other))
        self.turtle.append(f":{one} owl:disjointWith :{other} .")

    def completed(self) -> tuple[Pairs, set[str]]:
        """(pairs of classes, unsatisfiable classes), by applying every rule until nothing changes."""
        nothing = "⊥"
        names = {*self.classes} | {each for axiom in (*self.left, *self.back) for each in axiom} - {*self.properties}
        above = {name: {name} for name in names}
        links: set[tuple[str, str, str]] = set()
        left = self.left | {(one, other, nothing) for one, other in self.disjoint}
        while True:
            size = len(links) + sum(map(len, above.values()))
            for name, found in above.items():
                found |= {high for low, high in self.told if low in found}
                found |= {high for one, other, high in left if one in found and other in found}
                links |= {(name, property, filler) for low, property, filler in self.right if low in found}
            links |= {
                (one, high, other) for one, low, other in links for sub, high in self.sub_properties if sub == low
            }
            links |= {
                (one, property, last)
                for one, property, middle in links
                if property in self.transitive
                for again, same, last in links
                if again == middle and same == property
            }
            for one, property, other in links:
                above[one] |= {high for on, filler, high in self.back if on == property and filler in above[other]}
                above[one] |= {each for on, each in self.domains if on == property}
                above[one] |= {nothing} & above[other]
            if size == len(links) + sum(map(len, above.values())):
                break
        hopeless = {name for name in self.classes if nothing in above[name]}
        pairs = {
            (low, high)
            for low in self.classes
            if low not in hopeless
            for high in above[low] & {*self.classes}
            if high not in hopeless and low != high
        }
        return pairs, hopeless


def some(property: str, filler: str) -> str:
    return f"[ a owl:Restriction ; owl:onProperty :{property} ; owl:someValuesFrom :{filler} ]"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1_000])
def test_owl_finds_what_completion_finds(seed: int) -> None:
    """Random ontologies of existentials, conjunctions, definitions, hierarchies of properties, disjointness."""
    ontologies = [RandomOntology(number) for number in range(seed, seed + ONTOLOGIES)]
    document = PREFIXES + "\n".join(line for each in ontologies for line in each.turtle)
    found = read(document.encode(), format="turtle", reason="owl")
    completed = [each.completed() for each in ontologies]
    expected: Pairs = set().union(*(pairs for pairs, _ in completed))
    hopeless: set[str] = set().union(*(each for _, each in completed))
    assert {short(name) for name in found.unsatisfiable} == hopeless
    assert expected == pairs_of_classes(found, hopeless)
    assert pairs_of_classes(read(document.encode(), format="turtle"), hopeless) < expected


def pairs_of_classes(ontology: Ontology, left_out: set[str]) -> Pairs:
    pairs = {(short(low), short(high)) for low, high in meaning(ontology) if low != high}
    return {pair for pair in pairs if left_out.isdisjoint(pair)}


def short(name: str) -> str:
    return name.removeprefix("http://e/")


EXPRESSIONS = ("owl:intersectionOf", "owl:unionOf")


def random_expressions(number: int) -> list[str]:
    """Axioms of any shape that structure looks into: unions, intersections, complements, enumerations, nested."""
    rolls = random.Random(number)
    classes = [f":e{number}C{each}" for each in range(8)]
    individuals = [f":e{number}i{each}" for each in range(4)]

    def expression(depth: int) -> str:
        kind = rolls.random()
        if depth == 0 or kind < 0.4:
            return rolls.choice(classes)
        if kind < 0.8:
            members = " ".join(expression(depth - 1) for _ in range(rolls.randint(1, 3)))
            return f"[ a owl:Class ; {rolls.choice(EXPRESSIONS)} ( {members} ) ]"
        if kind < 0.9:
            return some(f"e{number}p", rolls.choice(classes).removeprefix(":"))
        if kind < 0.95:
            return f"[ a owl:Class ; owl:complementOf {expression(depth - 1)} ]"
        return f"[ a owl:Class ; owl:oneOf ( {' '.join(rolls.sample(individuals, 2))} ) ]"

    lines = [f"{each} a owl:Class ." for each in classes] + [f"{each} a owl:NamedIndividual ." for each in individuals]
    lines.append(f":e{number}p a owl:ObjectProperty .")
    for _ in range(rolls.randint(3, 6)):
        word = rolls.choice(("rdfs:subClassOf", "owl:equivalentClass"))
        lines.append(f"{rolls.choice(classes)} {word} {expression(2)} .")
    lines.append(f"{expression(1)} rdfs:subClassOf {rolls.choice(classes)} .")
    lines.append(f"{rolls.choice(individuals)} a {expression(1)} .")
    return lines


@pytest.mark.slow
def test_structure_alone_never_claims_a_wrong_pair() -> None:
    """What `none` says, HermiT finds as well: every pair of classes, every class of an individual."""
    checked = 0
    for start in range(0, 60, 10):
        lines = [line for number in range(start, start + 10) for line in random_expressions(number)]
        document = (PREFIXES + "\n".join(lines)).encode()
        plain = read(document, format="turtle")
        try:
            above, classes, hopeless = found_by_hermit(document)
        except InconsistentOntology:
            continue  # one that contradicts itself: everything would follow
        individuals = {one for one, _ in plain.types}
        for low, high in meaning(plain):
            if low in individuals:
                assert high == low or high in classes[low], (low, high)
            elif low not in hopeless and high != low:
                assert high in above.get(low, set()), (low, high)
            checked += low != high
    assert checked > 200


def found_by_hermit(document: bytes) -> tuple[dict[str, set[str]], dict[str, set[str]], set[str]]:
    """Classes → those above; individuals → their classes; what cannot be: from HermiT alone, nothing of ours."""
    _, axioms = read_with_axioms(document, format="turtle", reason="owl")
    assert axioms is not None
    found = run_hermit(axioms, java=find_java(), classpath=hermit_classpath(), heap=1 << 29)
    same = [(one, other) for group in found.groups for one in group for other in group]
    above = upwards([*found.pairs, *same])
    classes: dict[str, set[str]] = defaultdict(set)
    for one, each in found.types:
        classes[one] |= above.get(each, {each})
    return above, classes, {*found.unsatisfiable}
