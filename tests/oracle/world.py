"""What the oracle knows: plain lists of pairs, and the naive answers that follow from them (rules 2, 10, 12 to 14).

Nothing is numbered, merged or indexed. Two names are one concept when each is beneath the other; equivalent names are
beneath each other by definition, and so are names in a cycle. Every question walks the lists again.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise, product

__all__ = ["Declaration", "World"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Declaration:
    """What is declared of an attribute."""

    kind: str | None = None
    range: tuple[str, ...] = ()
    unit: str | None = None
    unit_from: str | None = None
    labels: tuple[str, ...] = ()
    enum: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    derived: str | None = None
    quantity: Mapping[str, str] | bool | None = None
    code: Mapping[str, str] | bool | None = None
    reads: tuple[Mapping[str, str], ...] = ()
    of_types: tuple[str, ...] = ()  # the event types for which it is derived; none: all events


@dataclass(frozen=True)
class World:
    """One version of a vocabulary, as lists.

    `labels` are (iri, label, language, level) with the levels `preferred`, `synonym` and `hidden`; `replaced` are
    (deprecated iri, its replacement); `relations` are (from, to) pairs by relation; `subproperties` are (narrower,
    broader) names of attributes. `matches` are pairs by skos:exactMatch, `schemes` are (concept, scheme); `only` are
    the names that are individuals and neither classes nor SKOS concepts.
    """

    narrower: Pairs = ()
    individuals: Pairs = ()
    equivalent: Pairs = ()
    matches: Pairs = ()
    schemes: Pairs = ()
    only: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str, str | None, str], ...] = ()
    names: tuple[str, ...] = ()
    prefixes: Pairs = ()
    replaced: Pairs = ()
    relations: Mapping[str, Pairs] = field(default_factory=dict)
    subproperties: Pairs = ()
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    synonyms: Mapping[str, str] = field(default_factory=dict)
    notations: Pairs = ()
    """(concept, its skos:notation)."""
    code_systems: Mapping[str, Mapping[str, tuple[str, ...] | str]] = field(default_factory=dict)
    aliases: tuple[tuple[str, str, str], ...] = ()
    """(`iri`, `prefix` or `pattern`, a form, the form that it stands for); patterns are Python's."""
    spelt: bool = False
    """Whether other spellings of labels mean their concepts."""
    inverses: Pairs = ()
    """Pairs of properties, by IRI."""
    unions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The parts of each union of relations that is declared, by name."""
    array: str = ""

    def curies(self, iri: str) -> set[str]:
        """Rule 21: how a subscription may write the IRI of a property by a prefix."""
        pairs = [(name, space, form) for name, space in self.prefixes for form in (iri, self.main(iri))]
        return {f"{name}:{form[len(space) :]}" for name, space, form in pairs if form.startswith(space)}

    # ── aliases (rule 24) ──────────────────────────────────────────────────────────────────────────────────────

    def main(self, text: str) -> str:
        """The main form of a text."""
        for _ in range(8):
            text = self._next_form(text)
        return text

    def _next_form(self, text: str) -> str:
        for how, form, other in self.aliases:
            if how == "iri" and form == text:
                return other
        fitting = [(form, other) for how, form, other in self.aliases if how == "prefix" and text.startswith(form)]
        if fitting:
            form, other = max(fitting, key=lambda pair: len(pair[0]))
            return other + text[len(form) :]
        for how, form, other in self.aliases:
            if how == "pattern" and (found := re.fullmatch(form, text)):
                return found.expand(other)
        return text

    def words(self, text: str) -> set[str]:
        """The root words of a constant."""
        return {self.root_word(text), self.root_word(self.main(text))}

    def aliased(self, iri: str) -> set[str]:
        """The names that `iri` is, or is an alias of; those that are stated go first."""
        if iri in self.names:
            return {iri}
        stated = {name for name in self.names if self.main(name) == self.main(iri)}
        known = [each for each in (iri, self.main(iri)) if each in self.concepts()]
        return stated or set(known[:1])

    # ── concepts ────────────────────────────────────────────────────────────────────────────────────────────────

    def concepts(self) -> set[str]:
        """Every name of a concept, and what is equivalent to one."""
        known = set(self.names) | {iri for iri, *_ in self.labels}
        known |= {name for pair in (*self.narrower, *self.individuals, *self.replaced) for name in pair}
        known |= {name for pairs in self.relations.values() for pair in pairs for name in pair}
        return _closed(known, self.merged)

    def above(self, iri: str) -> set[str]:
        """`iri` and every class or broader concept above it; equivalent names are above each other."""
        return _closed({iri}, [*self.narrower, *self.merged])

    @cached_property
    def merged(self) -> list[tuple[str, str]]:
        """Rule 10: every pair of names for one thing, both ways; of exact matches those that are one-to-one."""
        pairs = (*self.narrower, *self.individuals, *self.equivalent, *self.matches)
        names = {*self.names, *(name for pair in pairs for name in pair)}
        aliases = tuple((name, self.main(name)) for name in sorted(names) if self.main(name) != name)
        stated, matches = _both_ways((*self.equivalent, *aliases)), _both_ways(self.matches)
        return stated + [pair for pair in matches if self._is_one_to_one(_closed({pair[0]}, stated + matches), stated)]

    def _is_one_to_one(self, component: set[str], stated: list[tuple[str, str]]) -> bool:
        """Whether no two concepts of a component share a scheme."""
        concepts = {frozenset(_closed({name}, stated)) for name in component}
        return not any(self._share(one, other) for one, other in combinations(concepts, 2))

    def _share(self, one: frozenset[str], other: frozenset[str]) -> bool:
        schemes = [{scheme for name, scheme in self.schemes if name in concept} for concept in (one, other)]
        if schemes[0] and schemes[1]:
            return bool(schemes[0] & schemes[1])
        return bool(set(map(namespace, one)) & set(map(namespace, other)))

    def same(self, one: str, other: str) -> bool:
        """Whether two names are one concept."""
        return other in self.above(one) and one in self.above(other)

    def isa(self, value: str, concept: str) -> bool:
        """Rule 10: upwards any number of steps, entered by at most one step from an individual to its class."""
        return concept in self.kinds(value)

    def kinds(self, value: str) -> set[str]:
        """All that `value` is: itself and what is above it, and above each of its classes."""
        classes = {cls for individual, cls in self.individuals if self.same(individual, value)}
        return {upper for start in {value, *classes} for upper in self.above(start)}

    def edges(self, relation: str) -> Pairs | None:
        """Those of a relation, or of all known parts of a union; None where it is unknown."""
        name = relation.removeprefix("urn:kindcast:relation:")
        parts = [part for part in self.unions.get(name, ()) if part in self.relations]
        if relation != name and parts:
            return tuple(pair for part in parts for pair in self.relations[part])
        return self.relations.get(relation)

    def related(self, here: set[str], relation: str, concept: str) -> bool:
        """Rule 11: what a value is (`kinds`) leads by the relation to something, which may be `concept`, and on."""
        pairs = self.edges(relation) or ()
        arrived: set[str] = set()
        while True:
            ends = {right for left, right in pairs if left in here} - arrived
            if not ends:
                return any(concept in self.kinds(end) for end in arrived)
            arrived |= ends
            here = {kind for end in ends for kind in self.kinds(end)}

    # ── terms (rules 12, 13) ────────────────────────────────────────────────────────────────────────────────────

    def readings(self, text: str, within: Iterable[str] = ()) -> set[str]:
        """The concepts that a published string may mean, one name each; `within` decides where it leaves one, and then
        the one class or SKOS concept among individuals. What it is an alias of is meant besides."""
        chosen = self._chosen(text, within)
        return self._distinct({*chosen, *self._current(self.aliased(text))}) if self.aliases else chosen

    def meant(self, text: str, within: Iterable[str] = ()) -> set[str]:
        """The same; where that is nothing, what the root word means, and then what other spellings mean."""
        found = self.readings(text, within) or self.readings(self.root_word(text), within)
        return found or (self._decided(self._spelt_otherwise(text), within) if self.spelt else set())

    def _spelt_otherwise(self, text: str) -> set[str]:
        """The names that some other spelling of a text hits."""
        if len(text) > 64:
            return set()
        parts = re.split("([ _-]+)", folded(text).strip(" _-"))
        words = parts[::2]
        last = [words[-1]]
        if len(words[-1]) > 2 and words[-1].isalpha():
            last += [words[-1] + "s", words[-1] + "es", re.sub("y$", "ies", words[-1])]
            if words[-1].endswith("s"):
                last = [words[-1], words[-1][:-1], re.sub("ies$", "y", words[-1])]
                last += [words[-1][:-2]] if re.search("(s|x|z|ch|sh)es$", words[-1]) else []
        starts = {joint.join([*words[:-1], ""]) for joint in ("", " ", "-", "_")} | {"".join(parts[:-1])}
        if len(words) <= 3:
            starts = {""}
            for word in words[:-1]:
                starts = {start + word + joint for start in starts for joint in ("", " ", "-", "_")}
        forms = {start + each for start in starts for each in last if each}
        parts = re.split(r"[\s_:-]+", text.strip().upper())
        codes = {joint.join(parts) for joint in "-_:"} if re.search(r"\d", text) else set()
        hits = {iri for iri, label, _, its in self.labels if its != "hidden" and folded(label) in forms}
        for form in forms | codes:
            hits |= self._short(form)
        return hits

    def _chosen(self, text: str, within: Iterable[str]) -> set[str]:
        return self._decided(self._named(text), within)

    def _decided(self, names: set[str], within: Iterable[str]) -> set[str]:
        found = self._distinct(self._current(names))
        if len(found) > 1:
            kept = {iri for iri in found if any(self.isa(iri, upper) for upper in within)}
            if len(kept) == 1:
                return kept
            classes = {iri for iri in found if not self._is_only_individual(iri)}
            if len(classes) == 1:
                return classes
        return found

    def named(self, iri: str) -> set[str]:
        """The concepts that an IRI means, and nothing else does: none where it is not a concept's name."""
        return self._distinct(self._current(self.aliased(iri)))

    def coded(self, system: str, code: str) -> set[str]:
        """Rule 22: the concepts that a code means, by the IRI that a template makes of it and by notation."""
        system = self.main(system)
        declared = self.code_systems.get(system) or next(
            (each for each in self.code_systems.values() if system in map(self.main, each["identifiers"])),
            {"identifiers": (system,)},
        )
        template = declared.get("iri", "")
        made = {template.replace("{code}", code)} if isinstance(template, str) else set()
        named = {form for each in declared["identifiers"] for form in (each, self.main(each))}
        schemes = {(name, scheme) for name, scheme in self.schemes if self.main(scheme) in named}
        spaces = {(name, "") for name in self.names if named & {namespace(name), namespace(self.main(name))}}
        within = {name for name, _ in schemes | (spaces if declared in self.code_systems.values() else set())}
        noted = {name for name, its in self.notations if its == code and name in within}
        return self._distinct(self._current({name for each in made | noted for name in self.aliased(each)}))

    def _is_only_individual(self, iri: str) -> bool:
        return all(name in self.only for name in self.names if self.same(name, iri))

    def _named(self, text: str) -> set[str]:
        concepts = self.concepts()
        if text in concepts:
            return self.aliased(text)
        if short := self._short(text):
            return short
        for level, shape in (("preferred", _nfc), ("preferred", folded), ("synonym", folded)):
            hits = {iri for iri, label, _, its in self.labels if its == level and shape(label) == shape(text) != ""}
            if hits:
                return hits
        return set()

    def _short(self, text: str) -> set[str]:
        """What a text means as a CURIE, or as the local name of one concept."""
        prefix, colon, rest = text.partition(":")
        spelt = {space + rest for name, space in self.prefixes if colon and name == prefix}
        curies = {name for each in spelt for name in self.aliased(each)}
        if curies:
            return curies
        short = f"{prefix}_{rest}" if colon else text
        local = {iri for iri in self.concepts() if local_name(iri) == short} if short else set()
        return local if len(self._distinct(local)) == 1 else set()

    def _current(self, iris: set[str]) -> set[str]:
        """Deprecated names give way to what replaces them (rule 12)."""
        current = set()
        for iri in iris:
            later = {new for old, new in self.replaced if old == iri}
            current |= self._current(later - {iri}) if later else {iri}
        return current

    def successor(self, iri: str) -> str:
        """Rule 14: what a stored name means now: its replacement, if that is one concept, else itself."""
        found = self._distinct(self._current({iri}))
        return found.pop() if len(found) == 1 and iri in {old for old, _ in self.replaced} else iri

    def _distinct(self, iris: set[str]) -> set[str]:
        """One name of each concept among `iris`."""
        distinct: set[str] = set()
        for iri in sorted(iris):
            if not any(self.same(iri, other) for other in distinct):
                distinct.add(iri)
        return distinct

    def root_word(self, text: str) -> str:
        """The user's root word for `text`, in NFC."""
        text, seen = _nfc(text), set()
        while text in self.synonyms and text not in seen:
            seen.add(text)
            text = self.synonyms[text]
        return _nfc(text)

    # ── enumerations (rule 9) ──────────────────────────────────────────────────────────────────────────────────

    def members(self, name: str) -> set[str]:
        """The members of an attribute that is declared as an enumeration, as root words."""
        return set(map(self.root_word, self.declaration(name).enum))

    def is_above(self, name: str, high: str, low: str) -> bool:
        """Whether the order of the enumeration leads from `low` up to `high`, in one step or more."""
        chains = self.declaration(name).order
        steps = [(self.root_word(one), self.root_word(two)) for chain in chains for one, two in pairwise(chain)]
        return high in _closed({two for one, two in steps if one == low}, steps)

    # ── attributes (rule 2) ─────────────────────────────────────────────────────────────────────────────────────

    def inside(self, array: str) -> "World":
        """The same, where names are seen from an element of `array` (rule 3)."""
        return replace(self, array=f"{self.array}.{array}" if self.array else array)

    def attribute(self, raw: str) -> str:
        """The name that a published or written attribute name means, segment by segment; inside elements of an array
        one whose dotted name is declared is as it is."""
        if self.array and f"{self.array}.{raw}" in self.declarations:
            return raw
        return raw if raw in self._declared() else ".".join(map(self._segment, raw.split(".")))

    def broader(self, name: str) -> set[str]:
        """`name` and every name above it, on any segment."""
        choices = [_closed({segment}, self.subproperties) for segment in name.split(".")]
        return {".".join(each) for each in product(*choices)} | _closed({name}, self.subproperties)

    def declaration(self, name: str) -> Declaration:
        """What is declared of the whole name, else of its last segment; inside elements of an array first of all of
        the name with that of the array before it. CURIEs count as the local names of what they stand for (rule 21)."""
        local, whole = self._without_prefixes(name), f"{self.array}.{name}" if self.array else ""
        names = (whole, self._without_prefixes(whole), name, local, local.rpartition(".")[2])
        return next((self.declarations[each] for each in names if each in self.declarations), Declaration())

    def _without_prefixes(self, name: str) -> str:
        spelt = (each.split(":", 1) for each in name.split("."))
        known = {prefix for prefix, _ in self.prefixes}
        return ".".join(
            local_name(each[1]) if len(each) == 2 and each[0] in known else ":".join(each) for each in spelt
        )

    def _segment(self, segment: str) -> str:
        if segment in self._declared():
            return segment
        segment = self.root_word(segment)
        if segment in self._declared():
            return segment
        labelled = {
            name
            for name, declaration in self.declarations.items()
            if folded(segment) in map(folded, declaration.labels)
        }
        return labelled.pop() if len(labelled) == 1 else segment

    def _declared(self) -> set[str]:
        return {*self.declarations, *(name for pair in self.subproperties for name in pair)}


def local_name(iri: str) -> str:
    """What follows the last `#` or `/`."""
    return iri.replace("#", "/").rpartition("/")[2]


def namespace(iri: str) -> str:
    """What stands before the local name; of an identifier of OBO the prefix too."""
    local = local_name(iri)
    prefix = local.rpartition("_")[0] + "_" if iri.startswith("http://purl.obolibrary.org/obo/") else ""
    return iri[: len(iri) - len(local)] + prefix


def folded(text: str) -> str:
    """For comparisons that forgive case, width and white space (rule 12)."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _both_ways(pairs: Pairs) -> list[tuple[str, str]]:
    return [*pairs, *((other, one) for one, other in pairs)]


def _closed(start: Iterable[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """`start` and all that pairs lead to, from left to right, in any number of steps."""
    reached, pairs = set(start), list(pairs)
    while True:
        more = {right for left, right in pairs if left in reached} - reached
        if not more:
            return reached
        reached |= more
