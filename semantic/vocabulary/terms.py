"""Term resolution: what a name in an expression or an event may mean. docs/matching-semantics.md, rule 12.

Levels, best first; the first with a hit decides:

    iri         the IRI itself
    short       CURIE (`brick:Sensor`), short form (`CL_0000084`, `CL:0000084`), a local name that only one concept has
    label       preferred label, exact case
    folded      preferred label, folded: NFKC, case, white space
    synonym     exact synonym or alternative label, folded
    spelling    other spellings of labels and short forms, where a table of aliases says that they count; comes after
                aliases and root words
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology.iris import local_name
from kindcast.semantic.ontology.records import ConceptRecord
from kindcast.semantic.vocabulary.synonyms import Aliases

__all__ = ["CURIE", "Level", "Resolution", "TermIndex", "folded"]

Level = Literal["iri", "short", "label", "folded", "synonym", "spelling"]

CURIE = re.compile(r"[^\W\d][\w\-]*:[\w\-.]*\w")  # as the grammar of kindcast.semantic.language has it
LONGEST = 4_096  # characters of a term that is looked up: no label is longer, and folding costs by the character


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a term may mean: nothing, one concept, or several (ambiguous). `level` says how it was found; `replaced`
    pairs each deprecated IRI that was hit with its replacement, which stands in `candidates` in its place. `iris` are
    the names that were hit: equivalent names are one concept today, but perhaps not under the next version.
    `set_aside` are individuals of the same name that gave way to the one class or SKOS concept."""

    candidates: tuple[ConceptId, ...] = ()
    level: Level | None = None
    replaced: tuple[tuple[str, str], ...] = ()
    iris: tuple[str, ...] = field(default=(), compare=False)
    set_aside: tuple[ConceptId, ...] = ()

    def only(self, concept: ConceptId, names: frozenset[str], set_aside: tuple[ConceptId, ...] = ()) -> "Resolution":
        """The same for one of the candidates, which has these `names`."""
        return Resolution(
            (concept,),
            self.level,
            tuple(pair for pair in self.replaced if pair[1] in names),
            tuple(name for name in self.iris if name in names),
            set_aside,
        )


class TermIndex:
    """Every way to write every name. Immutable after construction; a look-up costs at most six dict accesses.

    The tables hold IRIs, not concepts: a deprecated name and its successor may share a label, and only by name can the
    one be followed to the other.
    """

    def __init__(
        self,
        records: Iterable[ConceptRecord],
        concept_of: Mapping[str, ConceptId],
        prefixes: Iterable[tuple[str, str]],
        replacement: Callable[[str], tuple[str, ...]],
        context_prefixes: Iterable[tuple[str, str]] = (),
        aliases: Aliases | None = None,
    ) -> None:
        """`concept_of` has all names, main forms of aliases too; `replacement` gives the names that stand for a
        deprecated one. `prefixes` are those of ontologies, `context_prefixes` those of JSON-LD contexts."""
        self._concept_of = concept_of
        self._aliases = aliases or Aliases()
        records = list(records)
        self._stated = {record.iri for record in records} if self._aliases else set()
        self._by_main: dict[str, list[str]] = {}
        for iri in sorted(self._stated) if self._aliases else ():
            self._by_main.setdefault(self._aliases.main(iri), []).append(iri)
        self._replacement = replacement
        self._labels = _Table()
        self._folded = _Table()
        self._synonyms = _Table()
        for record in records:
            for text, _ in record.preferred:
                self._labels.put(unicodedata.normalize("NFC", text), record.iri)
                self._folded.put(folded(text), record.iri)
            for text, _ in record.synonyms:
                self._synonyms.put(folded(text), record.iri)
        self._local = _Table()
        for iri in concept_of:
            self._local.put(local_name(iri), iri)
        self._prefixes = _by_prefix(prefixes)
        self._context_prefixes = _by_prefix(context_prefixes)
        own = ((local_name(namespace.rstrip("/#")), namespace) for namespace in self._prefixes.get("", ()))
        self._own_prefixes = _by_prefix(pair for pair in own if pair[0] not in self._prefixes)

    def resolve(self, term: str, *, is_iri: bool = False, asked: bool = False) -> Resolution:
        """What `term` may mean; with `is_iri` only as an IRI, with `asked` as a person means it, who may also use the
        prefixes of contexts."""
        if term in self._concept_of:
            return self._resolution(self._names_of(term), "iri")
        if is_iri or not term or len(term) > LONGEST:
            return self.aliased(term) if is_iri else Resolution()
        found = self.short_form(term, asked=asked)
        if found:
            return self._resolution(found, "short")
        text = unicodedata.normalize("NFC", term)
        if hit := self._labels.get(text):
            return self._resolution(hit, "label")
        fold = folded(text)
        if hit := self._folded.get(fold):
            return self._resolution(hit, "folded")
        if hit := self._synonyms.get(fold):
            return self._resolution(hit, "synonym")
        return self.aliased(term)

    def spelt_otherwise(self, text: str) -> Resolution:
        """What other spellings of `text` mean, all together. Costs some 20 to 200 look-ups."""
        found: dict[str, None] = {}
        for spelling in (*codes(text), *spellings(text)):
            named = (*self.short_form(spelling), *self._folded.get(spelling), *self._synonyms.get(spelling))
            found.update(dict.fromkeys(named))
        return self._resolution(tuple(found), "spelling")

    def aliased(self, text: str) -> Resolution:
        """What `text` means as an alias of a name (rule 24)."""
        if not self._aliases or len(text) > LONGEST:
            return Resolution()
        return self._resolution(self._names_of(text), "iri")

    def _names_of(self, iri: str) -> tuple[str, ...]:
        """The names that `iri` is or is an alias of: those that a document states before those it only implies."""
        if not self._aliases or iri in self._stated:
            return (iri,) if iri in self._concept_of else ()
        main = self._aliases.main(iri)
        stated = self._by_main.get(main)
        return tuple(stated) if stated else tuple(each for each in (iri, main) if each in self._concept_of)[:1]

    def short_form(self, term: str, *, asked: bool = False) -> tuple[str, ...]:
        """The IRIs that `term` abbreviates: as a CURIE by the ontologies' prefixes (where it is `asked`, else by those
        of contexts), or as the local name of one concept, or, where it is `asked`, by the last part of a namespace that
        an ontology has the empty prefix for."""
        prefix, colon, rest = term.partition(":")
        tables = (self._prefixes, self._context_prefixes) if asked else (self._prefixes,)
        for table in tables if colon else ():
            if found := self._known(table, prefix, rest):
                return found
        found = self._local.get(f"{prefix}_{rest}" if colon else term)
        if len({self._concept_of[iri] for iri in found}) == 1:
            return found
        return self._known(self._own_prefixes, prefix, rest) if colon and asked else ()

    def spelt_out(self, curie: str) -> tuple[str, ...]:
        """The IRIs that a CURIE may stand for where it is asked, known or not: by the first table that has its
        prefix."""
        prefix, colon, rest = curie.partition(":")
        for table in (self._prefixes, self._context_prefixes, self._own_prefixes) if colon else ():
            if prefix in table:
                return tuple(namespace + rest for namespace in table[prefix])
        return ()

    def _known(self, table: Mapping[str, list[str]], prefix: str, rest: str) -> tuple[str, ...]:
        spelt_out = (namespace + rest for namespace in table.get(prefix, ()))
        return tuple(name for iri in spelt_out for name in self._names_of(iri))

    def known(self, iris: Iterable[str]) -> Resolution:
        """What these IRIs mean, those that are known; deprecated ones are replaced."""
        return self._resolution(tuple(name for iri in iris for name in self._names_of(iri)), "iri")

    def shared(self) -> set[str]:
        """The labels of more than one name: exact ones, and folded ones."""
        return {text for table in (self._labels, self._folded, self._synonyms) for text in table.shared()}

    def curies(self, iri: str) -> Iterator[str]:
        """The CURIEs of `iri` that an expression may use, shortest first. Linear in the prefixes."""
        found = [
            f"{prefix}:{iri.removeprefix(namespace)}"
            for prefix, namespaces in self._prefixes.items()
            for namespace in namespaces
            if namespace and iri.startswith(namespace)
        ]
        return filter(CURIE.fullmatch, sorted(found, key=lambda curie: (len(curie), curie)))

    def _resolution(self, iris: tuple[str, ...], level: Level) -> Resolution:
        named: dict[str, None] = {}
        replaced: list[tuple[str, str]] = []
        for iri in iris:
            successors = self._replacement(iri)
            replaced.extend((iri, successor) for successor in successors)
            named.update(dict.fromkeys(successors or (iri,)))
        candidates = {self._concept_of[iri] for iri in named}
        return Resolution(tuple(sorted(candidates)), level, tuple(replaced), tuple(named))


def _by_prefix(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for prefix, namespace in sorted(pairs):
        found.setdefault(prefix, []).append(namespace)
    return found


class _Table:
    """Text → IRIs. Most texts have one, which is kept bare: with a million labels, tuples would cost as much as the
    rest."""

    def __init__(self) -> None:
        self._found: dict[str, str | tuple[str, ...]] = {}

    def put(self, text: str, iri: str) -> None:
        if not text:
            return
        old = self._found.get(text)
        if old is None:
            self._found[text] = iri
        elif isinstance(old, str):
            if old != iri:
                self._found[text] = (old, iri)
        elif iri not in old:
            self._found[text] = (*old, iri)

    def shared(self) -> Iterator[str]:
        """The texts with several IRIs."""
        return (text for text, found in self._found.items() if not isinstance(found, str))

    def get(self, text: str) -> tuple[str, ...]:
        found = self._found.get(text, ())
        return (found,) if isinstance(found, str) else found


def folded(text: str) -> str:
    """`text` for comparisons that forgive: NFKC, without case, white space runs as one blank.

    >>> folded("  Temperature\\tSENSOR "), folded("Straße") == folded("STRASSE")
    ('temperature sensor', True)
    """
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


SPELT = 64
"""Characters of a text of which other spellings are made."""


JOINTS = (" ", "-", "_", "")
"""What may stand between the words of a name."""
MIXED = 3
"""Words that are joined in every way; more are joined all in one way, or as they are written."""


def spellings(text: str) -> Iterator[str]:
    """The spellings of a name, folded: its words joined in other ways, the last one as it is and in the other number of
    English. At most 64.

    >>> list(spellings("galaxy"))
    ['galaxy', 'galaxys', 'galaxies', 'galaxyes']
    >>> [each for each in spellings("hard-disks") if each in ("hard disk", "harddisk", "hard_disks")]
    ['hard disk', 'hard_disks', 'harddisk']
    """
    parts = re.split("([ _-]+)", folded(text).strip(" _-")) if len(text) <= SPELT else [""]
    words, written = parts[::2], parts[1::2]
    if not words[-1]:
        return
    gaps = len(words) - 1
    ways = [*product(JOINTS, repeat=gaps)] if gaps < MIXED else [tuple(written), *((each,) * gaps for each in JOINTS)]
    for joints in ways:
        start = "".join(word + joint for word, joint in zip(words, joints, strict=False))
        for end in (words[-1], *_other_numbers(words[-1])):
            yield start + end


def codes(text: str) -> Iterator[str]:
    """The short forms that `text` may be, if it has a digit: in capitals, its parts joined by hyphens, underscores or a
    colon.

    >>> list(codes("cwe-79")), list(codes("hard disk"))
    (['CWE-79', 'CWE_79', 'CWE:79'], [])
    """
    if len(text) > SPELT or not re.search(r"\d", text):
        return
    parts = re.split(r"[\s\-_:]+", text.strip().upper())
    yield from dict.fromkeys(joint.join(parts) for joint in "-_:")


def _other_numbers(word: str) -> Iterator[str]:
    """The plural of a singular, the singular of a plural; several where the ending does not tell."""
    if len(word) < 3 or not word.isalpha():
        return
    if word.endswith("s"):
        if word.endswith("ies"):
            yield f"{word[:-3]}y"
        if word.endswith(("ses", "xes", "zes", "ches", "shes")):
            yield word[:-2]
        yield word[:-1]
        return
    yield f"{word}s"
    if word.endswith("y"):
        yield f"{word[:-1]}ies"
    yield f"{word}es"
