"""Resolution of terms to concepts, the label to show in a language, and search for the known names nearest to a typo.

    labels ──bigrams of letters──▶ postings: bigram → labels
    query ──its bigrams──▶ labels that share most of them ──compared in full──▶ the nearest

The postings are flat arrays. They are built at first use: a few seconds for a million labels. No nearest-name query
scans all labels. `NearNames` finds the known attribute that is probably meant by an unknown one. It is used in messages
only.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain, islice, product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology.records import ConceptRecord, Label, Ontology, local_name
from kindcast.semantic.unicode_text import nfc, nfkc
from kindcast.semantic.vocabulary.identifiers import Aliases

__all__ = [
    "CURIE",
    "FoundLabel",
    "LabelIndex",
    "Level",
    "Names",
    "NearNames",
    "Resolution",
    "TermIndex",
    "best_label",
    "folded",
    "label_in",
    "word_key",
]

# ── term resolution: what a name in an expression or an event may mean (docs/matching-semantics.md, rule 12) ──────────

# The levels, best first. The first level with a hit decides:
#
#     iri         the IRI itself
#     short       CURIE (`brick:Sensor`), short form (`CL_0000084`, `CL:0000084`), a local name of only one concept
#     label       preferred label, exact case
#     folded      preferred label, folded: NFKC, case, white space
#     synonym     exact synonym or alternative label, folded
#     spelling    other spellings of labels and short forms, where a table of aliases says that they count; comes after
#                 aliases and root words


Level = Literal["iri", "short", "label", "folded", "synonym", "spelling"]

CURIE = re.compile(r"[^\W\d][\w\-]*:[\w\-.]*\w")  # as the grammar of kindcast.semantic.language has it
LONGEST_TERM = 4_096  # characters of a term that is looked up: no label is longer, and folding costs by the character


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a term may mean: no concept, one concept, or several (ambiguous). `level` tells how it was found. `replaced`
    pairs each deprecated IRI that was hit with its replacement, which is in `candidates` instead. `iris` are the names
    that were hit: names that are equivalent in this version may be different concepts in the next. `set_aside` are
    individuals of the same name, dropped in favour of the only class or SKOS concept."""

    candidates: tuple[ConceptId, ...] = ()
    level: Level | None = None
    replaced: tuple[tuple[str, str], ...] = ()
    iris: tuple[str, ...] = field(default=(), compare=False)
    set_aside: tuple[ConceptId, ...] = ()
    preferred: "Resolution | None" = field(default=None, compare=False)
    """The meaning without the individuals, if they have the same name as one class or SKOS concept."""

    def only(self, concept: ConceptId, names: frozenset[str], set_aside: tuple[ConceptId, ...] = ()) -> "Resolution":
        """Returns the resolution restricted to one of its candidates, which has these `names`."""
        return Resolution(
            (concept,),
            self.level,
            tuple(pair for pair in self.replaced if pair[1] in names),
            tuple(name for name in self.iris if name in names),
            set_aside,
        )


UNKNOWN = Resolution()


class TermIndex:
    """An index of all spellings of all names. Immutable after construction. A look-up costs at most six dict accesses.

    The tables hold IRIs instead of concepts, because a deprecated name and its successor may share a label; only by
    name can the first be replaced by the second.
    """

    def __init__(
        self,
        records: Iterable[ConceptRecord],
        concept_of: Mapping[str, ConceptId],
        prefixes: Iterable[tuple[str, str]],
        replacement: Callable[[str], tuple[str, ...]],
        prefer: Callable[[Resolution], Resolution | None],
        context_prefixes: Iterable[tuple[str, str]] = (),
        aliases: Aliases | None = None,
    ) -> None:
        """`concept_of` has all names, including main forms of aliases. `replacement` returns the names that replace a
        deprecated one. `prefer` returns `Resolution.preferred`. `prefixes` are those of ontologies, `context_prefixes`
        those of JSON-LD contexts."""
        self._concept_of = concept_of
        self._aliases = aliases or Aliases()
        records = list(records)
        self._stated = {record.iri for record in records} if self._aliases else set()
        self._by_main: dict[str, list[str]] = {}
        for iri in sorted(self._stated) if self._aliases else ():
            self._by_main.setdefault(self._aliases.main(iri), []).append(iri)
        self._replacement = replacement
        self._prefer = prefer
        self._labels = _Table()
        self._folded = _Table()
        self._synonyms = _Table()
        for record in records:
            for text, _ in record.preferred:
                self._labels.put(nfc(text), record.iri)
                self._folded.put(folded(text), record.iri)
            for text, _ in record.synonyms:
                self._synonyms.put(folded(text), record.iri)
        self._local = _Table()
        for iri in concept_of:
            self._local.put(local_name(iri), iri)
        for table in (self._labels, self._folded, self._synonyms, self._local):
            table.complete()
        self._prefixes = _by_prefix(prefixes)
        self._context_prefixes = _by_prefix(context_prefixes)
        own = ((local_name(namespace.rstrip("/#")), namespace) for namespace in self._prefixes.get("", ()))
        self._own_prefixes = _by_prefix(pair for pair in own if pair[0] not in self._prefixes)
        self._ambiguous: dict[tuple[Level, str], Resolution] = {}

    def resolve(self, term: str, *, is_iri: bool = False, asked: bool = False) -> Resolution:
        """Returns what `term` may mean. With `is_iri` it is read only as an IRI. With `asked` a person wrote it, and it
        may also use the prefixes of contexts."""
        if term in self._concept_of:
            return self._resolution(self._names_of(term), "iri")
        if is_iri or not term or len(term) > LONGEST_TERM:
            return self.aliased(term) if is_iri else UNKNOWN
        if (":" in term or term in self._local.found) and (found := self.short_form(term, asked=asked)):
            return self._resolution(found, "short")
        text = nfc(term)
        if text in self._labels.found:
            return self._of_label(self._labels.get(text), "label", text)
        fold = folded(text)
        if fold in self._folded.found:
            return self._of_label(self._folded.get(fold), "folded", fold)
        if fold in self._synonyms.found:
            return self._of_label(self._synonyms.get(fold), "synonym", fold)
        return self.aliased(term) if self._aliases else UNKNOWN

    def spelt_otherwise(self, text: str) -> Resolution:
        """Returns the meanings of all other spellings of `text` together. Costs about 20 to 200 look-ups."""
        found: dict[str, None] = {}
        for spelling in (*codes(text), *spellings(text)):
            named = (*self.short_form(spelling), *self._folded.get(spelling), *self._synonyms.get(spelling))
            found.update(dict.fromkeys(named))
        return self._resolution(tuple(found), "spelling")

    def aliased(self, text: str) -> Resolution:
        """Returns what `text` means as an alias of a name (rule 24)."""
        if not self._aliases or len(text) > LONGEST_TERM:
            return UNKNOWN
        return self._resolution(self._names_of(text), "iri")

    def _names_of(self, iri: str) -> tuple[str, ...]:
        """Returns the names that `iri` equals or is an alias of. Names that a document states are preferred to implied
        ones."""
        if not self._aliases or iri in self._stated:
            return (iri,) if iri in self._concept_of else ()
        main = self._aliases.main(iri)
        stated = self._by_main.get(main)
        return tuple(stated) if stated else tuple(each for each in (iri, main) if each in self._concept_of)[:1]

    def short_form(self, term: str, *, asked: bool = False) -> tuple[str, ...]:
        """Returns the IRIs that `term` abbreviates. It is read as a CURIE with the ontologies' prefixes, or as the
        local name of one concept. If `asked`, prefixes of contexts count too, and so does the last part of a namespace
        that an ontology gives the empty prefix."""
        prefix, colon, rest = term.partition(":")
        tables = (self._prefixes, self._context_prefixes) if asked else (self._prefixes,)
        for table in tables if colon else ():
            if found := self._known(table, prefix, rest):
                return found
        found = self._local.get(f"{prefix}_{rest}" if colon else term)
        if found and len({self._concept_of[iri] for iri in found}) == 1:
            return found
        return self._known(self._own_prefixes, prefix, rest) if colon and asked else ()

    def with_local_name(self, term: str) -> Resolution:
        """Returns the concepts with the local name `term`. If there is only one, `resolve` returns it too."""
        return self._resolution(self._local.get(term), "short")

    def spelt_out(self, curie: str) -> tuple[str, ...]:
        """Returns the IRIs, known or not, that a CURIE in a subscription may stand for, by the first table that has its
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
        """Returns the meaning of those IRIs that are known. Deprecated ones are replaced."""
        return self._resolution(tuple(name for iri in iris for name in self._names_of(iri)), "iri")

    def shared(self) -> set[str]:
        """Returns the labels, exact and folded, that more than one name has."""
        return {text for table in (self._labels, self._folded, self._synonyms) for text in table.shared()}

    def curies(self, iri: str) -> Iterator[str]:
        """Yields the CURIEs of `iri` that an expression may use, shortest first. Linear in the number of prefixes."""
        found = [
            f"{prefix}:{iri.removeprefix(namespace)}"
            for prefix, namespaces in self._prefixes.items()
            for namespace in namespaces
            if namespace and iri.startswith(namespace)
        ]
        return filter(CURIE.fullmatch, sorted(found, key=lambda curie: (len(curie), curie)))

    def _of_label(self, iris: tuple[str, ...], level: Level, text: str) -> Resolution:
        """Returns the meaning of a label. That of an ambiguous one is computed once: if very many names have the label,
        each of its spellings would otherwise take their time and their memory."""
        if len(iris) == 1:
            return self._resolution(iris, level)
        found = self._ambiguous.get((level, text))
        if found is None:
            found = self._ambiguous[level, text] = self._resolution(iris, level)
        return found

    def _resolution(self, iris: tuple[str, ...], level: Level) -> Resolution:
        named: dict[str, None] = {}
        replaced: list[tuple[str, str]] = []
        for iri in iris:
            successors = self._replacement(iri)
            replaced.extend((iri, successor) for successor in successors)
            named.update(dict.fromkeys(successors or (iri,)))
        candidates = sorted({self._concept_of[iri] for iri in named})
        found = Resolution(tuple(candidates), level, tuple(replaced), tuple(named))
        return replace(found, preferred=self._prefer(found)) if len(candidates) > 1 else found


def _by_prefix(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for prefix, namespace in sorted(pairs):
        found.setdefault(prefix, []).append(namespace)
    return found


class _Table:
    """A map of text → IRIs. A single IRI, the usual case, is stored without a tuple: with a million labels, tuples
    would cost as much memory as everything else."""

    def __init__(self) -> None:
        self.found: dict[str, str | tuple[str, ...]] = {}
        """Text → its IRI or IRIs. Most texts of events are in no table; `in` takes a fraction of the time of `get`."""
        self._several: dict[str, dict[str, None]] = {}  # tuples would take quadratic time if all names have one text

    def put(self, text: str, iri: str) -> None:
        if not text:
            return
        old = self.found.setdefault(text, iri)
        if isinstance(old, str) and old != iri:
            several = self._several.setdefault(text, {})
            several[old] = several[iri] = None

    def complete(self) -> None:
        """Called once, after the last `put`."""
        for text, iris in self._several.items():
            self.found[text] = tuple(iris)
        self._several.clear()

    def shared(self) -> Iterator[str]:
        """Yields the texts with several IRIs."""
        return (text for text, found in self.found.items() if not isinstance(found, str))

    def get(self, text: str) -> tuple[str, ...]:
        found = self.found.get(text, ())
        return (found,) if isinstance(found, str) else found


def folded(text: str) -> str:
    """Returns `text` folded for tolerant comparison: NFKC, without case, each run of white space as one blank.

    >>> folded("  Temperature\\tSENSOR "), folded("Straße") == folded("STRASSE")
    ('temperature sensor', True)
    """
    if text.isascii():  # NFKC changes nothing
        return " ".join(text.lower().split())
    return " ".join(nfkc(nfkc(text).casefold()).split())


SPELT = 64
"""The maximum length of a text whose other spellings are tried."""


JOINTS = (" ", "-", "_", "")
"""The separators that may be between the words of a name."""
MIXED = 3
"""The maximum number of words that are joined in all combinations. More words are joined with one separator
or as written."""


def spellings(text: str) -> Iterator[str]:
    """Yields the folded spellings of a name: its words joined with other separators, the last word in singular and
    plural. At most 64.

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
    """Yields the short forms that `text` may stand for, if it has a digit: in capitals, its parts joined by hyphens,
    underscores or a colon.

    >>> list(codes("cwe-79")), list(codes("hard disk"))
    (['CWE-79', 'CWE_79', 'CWE:79'], [])
    """
    if len(text) > SPELT or not re.search(r"\d", text):
        return
    parts = re.split(r"[\s\-_:]+", text.strip().upper())
    yield from dict.fromkeys(joint.join(parts) for joint in "-_:")


def _other_numbers(word: str) -> Iterator[str]:
    """Yields the plural of a singular or the singular of a plural; several if the ending is ambiguous."""
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


_KINDS = ("class", "concept", "scheme", "individual", "retired")  # if documents disagree, the first of these wins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Names:
    """One record per name, and the ontology that declares it (or, failing that, refers to it). Immutable."""

    records: Mapping[str, ConceptRecord] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    _remarks: Mapping[str, tuple[str, ConceptRecord]] = field(default_factory=dict, repr=False)
    """The remarks about names without a record, each with its ontology: a mapping file may state labels and schemes of
    the names that it maps."""

    @classmethod
    def of(cls, ontologies: Iterable[Ontology]) -> "Names":
        """Merges the statements of `ontologies`: a name has the labels of all, and is deprecated if one of them says
        so."""
        records: dict[str, ConceptRecord] = {}
        origins: dict[str, str] = {}
        remarks: dict[str, tuple[str, ConceptRecord]] = {}
        ontologies = sorted(ontologies, key=lambda each: (each.name, each.sha256))
        for ontology in ontologies:
            for record in ontology.concepts:
                known = records.get(record.iri)
                if known is None:
                    records[record.iri] = record
                    origins[record.iri] = ontology.name
                else:
                    if record.declared and not known.declared:
                        origins[record.iri] = ontology.name
                    records[record.iri] = _merged(known, record)
        for ontology in ontologies:
            for remark in ontology.remarks:
                if remark.iri in records:
                    records[remark.iri] = _merged(records[remark.iri], remark)
                else:
                    origin, known = remarks.get(remark.iri, (ontology.name, remark))
                    remarks[remark.iri] = origin, known if known is remark else _merged(known, remark)
        return cls(records=records, origins=origins, _remarks=remarks)

    def including(self, iris: Iterable[str]) -> "Names":
        """Returns these names together with those of `iris` that have no record, but are remarked upon. They are other
        names of known concepts, so their labels count."""
        added = {iri: self._remarks[iri] for iri in iris if iri in self._remarks}
        return replace(
            self,
            records={**self.records, **{iri: record for iri, (_, record) in added.items()}},
            origins={**self.origins, **{iri: origin for iri, (origin, _) in added.items()}},
        )

    def schemes(self, iri: str) -> tuple[str, ...]:
        """Returns the schemes in which `iri` is stated to be."""
        record = self.records.get(iri)
        if record is None and iri in self._remarks:
            record = self._remarks[iri][1]
        return () if record is None else record.schemes

    def preference(self, iri: str) -> tuple[bool, bool, bool, bool]:
        """A sort key for the names of one concept: known, not deprecated, declared, labelled names come first."""
        record = self.records.get(iri)
        if record is None:
            return (True, True, True, True)
        return (False, record.deprecated, not record.declared, not record.preferred)

    def places(self, iris: Iterable[str]) -> bool:
        """Returns whether one of these names is a node of a hierarchy, and not only an individual or a retired name."""
        return any(iri in self.records and self.records[iri].kind not in ("individual", "retired") for iri in iris)


def language_rank(tag: str | None, language: str) -> int:
    """Returns how well a label with this language tag fits `language`; 0 is best. The order is: the language itself,
    its base language (`en` for `en-GB`), another variety of the base language, no language, any other.

    >>> [language_rank(tag, "en-GB") for tag in ("en-gb", "en", "en-us", None, "de")]
    [0, 1, 2, 3, 4]
    """
    wanted = language.lower()
    base = wanted.partition("-")[0]
    if tag is None:
        return 3
    if tag in (wanted, base):
        return int(tag != wanted)
    return 2 if tag.partition("-")[0] == base else 4


def label_in(labels: Sequence[Label], language: str) -> str | None:
    """The text of the first label that fits `language` best (`language_rank`); None if there is no label."""
    return min(labels, key=lambda label: language_rank(label[1], language))[0] if labels else None


def best_label(records: Sequence[ConceptRecord], iri: str, language: str) -> str:
    """Returns the label to show for `iri`: the one that fits `language` best in the records of all its names, else the
    local name of the IRI."""
    labels = [label for record in records for label in record.preferred]
    return label_in(labels, language) or local_name(iri) or iri


def all_labels(record: ConceptRecord) -> list[Label]:
    """Returns all labels of `record`, including loose and hidden ones, and the local name of its IRI; each spelling
    once."""
    labels: dict[str, Label] = {}
    for text, tag in (*record.preferred, *record.synonyms, *record.hidden, (local_name(record.iri), None)):
        labels.setdefault(" ".join(text.replace("_", " ").split()), (text, tag))
    return list(labels.values())


def _merged(one: ConceptRecord, other: ConceptRecord) -> ConceptRecord:
    return replace(
        one,
        kind=min(one.kind, other.kind, key=_KINDS.index),
        declared=one.declared or other.declared,
        preferred=_union(one.preferred, other.preferred),
        synonyms=_union(one.synonyms, other.synonyms),
        hidden=_union(one.hidden, other.hidden),
        deprecated=one.deprecated or other.deprecated,
        replaced_by=tuple(sorted({*one.replaced_by, *other.replaced_by})),
        consider=tuple(sorted({*one.consider, *other.consider})),
        definition=one.definition or other.definition,
        schemes=one.schemes if one.schemes == other.schemes else tuple(sorted({*one.schemes, *other.schemes})),
        notations=tuple(sorted({*one.notations, *other.notations})) if other.notations else one.notations,
    )


def _union(one: tuple[Label, ...], other: tuple[Label, ...]) -> tuple[Label, ...]:
    return tuple(sorted({*one, *other}, key=lambda label: (label[1] or "", label[0])))


LONGEST = 128  # the length to which labels and queries are cut; longer names that differ later count as near
COMPARED = 96  # labels that a query compares in full: about 50 µs each
PIECE = 1 << 15  # labels or records per batch while the index is built
NEWLINE = ord("\n")
LIKENESS = 0.5  # names with a lower ratio are not near


class FoundLabel(NamedTuple):
    """A label as written, its language tag, and the name that has it."""

    text: str
    language: str | None
    iri: str


class LabelIndex:
    """An index of labels by their bigrams of letters. Immutable. A query costs one pass over the postings of its
    bigrams (some milliseconds at a hundred thousand labels) and `COMPARED` comparisons.

        labels       number ─▶ `record`, and which of its labels: int32 each
        blob         their trimmed texts in UTF-8, a line each; `starts[k]` : `starts[k + 1]` is line k
        codes        sorted uint64: two code points; `offsets[k]` : `offsets[k + 1]` the slice of `owners` (int32
                     labels) that have it, ascending
        sizes        int32: distinct pairs in each label

    The index is built in two passes over the labels, in batches. Its construction needs little more memory than the
    index itself, which has about 100 bytes per label.
    """

    def __init__(self, records: Iterable[ConceptRecord]) -> None:
        """Indexes all labels of `records`, including hidden ones and short forms."""
        self._records = list(records)
        counts = [len(all_labels(record)) for record in self._records]
        self._record = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        first = np.cumsum([0, *counts[:-1]]) if counts else np.zeros(0, dtype=np.int64)
        self._place = (np.arange(len(self._record)) - np.repeat(first, counts)).astype(np.int32)
        lines = [
            b"".join(_line(label[0]) for record in self._records[at : at + PIECE] for label in all_labels(record))
            for at in range(0, len(self._records), PIECE)
        ]
        self._blob = b"".join(lines)
        del lines
        ends = np.flatnonzero(np.frombuffer(self._blob, dtype=np.uint8) == NEWLINE) + 1
        self._starts: npt.NDArray[np.int64] = np.concatenate([[0], ends]).astype(np.int64)
        self._sizes = np.zeros(len(self._record), dtype=np.int32)
        number_of: dict[int, int] = {}
        for _, codes, owners in self._pieces():
            found, count = np.unique(codes, return_counts=True)
            for code, times in zip(found.tolist(), count.tolist(), strict=True):
                number_of[code] = number_of.get(code, 0) + times
            self._sizes += np.bincount(owners, minlength=len(self._sizes)).astype(np.int32)
        self._codes = np.array(sorted(number_of), dtype=np.uint64)
        held = np.array([number_of[code] for code in self._codes.tolist()], dtype=np.int64)
        self._offsets: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)
        self._owners = np.empty(int(self._offsets[-1]), dtype=np.int32)
        free = self._offsets[:-1].copy()
        for _, codes, owners in self._pieces():
            found, begin, count = np.unique(codes, return_index=True, return_counts=True)
            at = np.searchsorted(self._codes, found)
            self._owners[np.repeat(free[at] - begin, count) + np.arange(len(codes))] = owners
            free[at] += count

    def nearest(self, text: str, limit: int) -> list[FoundLabel]:
        """Returns at most `limit` labels that are most similar to `text`, best first. Labels below `LIKENESS` are left
        out."""
        wanted = _trimmed(text if text.count(":") != 1 or " " in text else text.partition(":")[2])
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(wanted)
        scored = []
        for number in self._likely(wanted):
            likely = self._text(number)
            matcher.set_seq1(likely)
            ratio = matcher.ratio() if matcher.quick_ratio() >= LIKENESS else 0.0
            if ratio >= LIKENESS:
                scored.append((-ratio, likely, number))
        return [self._label(number) for _, _, number in sorted(scored)[:limit]]

    def containing(self, text: str) -> Iterator[FoundLabel]:
        """Yields the labels that contain `text`: equal labels first, then those that begin with it, then those where a
        word begins with it, then the others; shorter ones first. One scan of all labels."""
        wanted = _bytes(_trimmed(text))
        starts = self._starts
        # No match crosses a line end, so the first match of each line is enough. An empty text is in every line.
        at = _places(wanted, self._blob) if wanted else starts[:-1]
        numbers, first = np.unique(np.searchsorted(starts, at, side="right") - 1, return_index=True)
        lengths = starts[numbers + 1] - 1 - starts[numbers]
        words = np.unique(np.searchsorted(starts, _places(b" " + wanted, self._blob), side="right") - 1)
        ranks = np.where(np.isin(numbers, words), 2, 3)
        begins = at[first] == starts[numbers]
        ranks[begins] = np.where(lengths[begins] == len(wanted), 0, 1)
        order = np.lexsort((lengths, ranks))
        changes = np.flatnonzero(np.diff(ranks[order]) | np.diff(lengths[order])) + 1
        for group in np.split(numbers[order], changes):  # sorted by text only as far as the caller reads
            for _, number in sorted((self._text(number), number) for number in group.tolist()):
                yield self._label(number)

    def _likely(self, wanted: str) -> list[int]:
        """Returns the labels that share most bigrams with `wanted`, by Dice's coefficient."""
        codes = np.unique(_pairs([wanted])[0])
        at = np.searchsorted(self._codes, codes)
        slices = [
            self._owners[self._offsets[k] : self._offsets[k + 1]]
            for k, code in zip(at.tolist(), codes, strict=True)
            if k < len(self._codes) and self._codes[k] == code
        ]
        if not slices:
            return []
        shared = np.zeros(len(self._sizes), dtype=np.int32)
        for owners in slices:  # distinct within a slice
            shared[owners] += 1
        likeness = 2.0 * shared / (self._sizes + len(codes))
        most = min(COMPARED, int(np.count_nonzero(shared)))
        best = np.argpartition(-likeness, most - 1)[:most]
        return [int(number) for number in best]

    def _pieces(self) -> Iterator[tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int32]]]:
        """Yields (first label, codes, owners) for each batch of labels: the distinct bigrams of each label, sorted by
        code, then by label."""
        for start in range(0, len(self._record), PIECE):
            texts = [self._text(number) for number in range(start, min(start + PIECE, len(self._record)))]
            codes, owners = _pairs(texts)
            order = np.lexsort((owners, codes))
            codes, owners = codes[order], owners[order]
            first = np.ones(codes.size, dtype=bool)
            first[1:] = (codes[1:] != codes[:-1]) | (owners[1:] != owners[:-1])
            yield start, codes[first], owners[first] + np.int32(start)

    def _text(self, number: int) -> str:
        line = self._blob[self._starts[number] : self._starts[number + 1] - 1]
        return line.decode("utf-8", "surrogatepass")

    def _label(self, number: int) -> FoundLabel:
        record = self._records[self._record[number]]
        text, language = all_labels(record)[self._place[number]]
        return FoundLabel(text, language, record.iri)


def _pairs(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Returns (two code points, number of the text) for each bigram of ` text `, with a blank at either end."""
    joined = "".join(f" {text} " for text in texts)
    points = np.frombuffer(joined.encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
    owner = np.repeat(np.arange(len(texts), dtype=np.int32), [len(text) + 2 for text in texts])
    inside = owner[:-1] == owner[1:]
    return (points[:-1][inside] << np.uint64(32)) | points[1:][inside], owner[:-1][inside]


def _line(text: str) -> bytes:
    return _bytes(_trimmed(text)) + b"\n"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _trimmed(text: str) -> str:
    """Returns `text` in the form that is compared: folded, `_` as a blank, cut to `LONGEST`."""
    return folded(text[: 2 * LONGEST].replace("_", " "))[:LONGEST]


def _places(wanted: bytes, blob: bytes) -> npt.NDArray[np.int64]:
    """Returns the offsets of `wanted` in `blob`, ascending, without overlaps."""
    found = re.finditer(re.escape(wanted), blob)
    return np.fromiter((each.start() for each in found), dtype=np.int64)


MOST_LOOKED_AT = 1_000
"""The maximum number of known segments of about the same length that are looked at for one unknown segment. A look
costs some 0.2 µs."""
MOST_COMPARED = 50
"""The maximum number of known segments with about the same letters that one unknown segment is compared with. A
comparison costs some 20 µs."""
SHORTEST = 4
"""The least length of a segment in which one letter may be wrong. In shorter ones only case, hyphens and plurals may
differ."""
LONG = 9
"""The least length of a segment in which two letters may be wrong."""


class NearNames:
    """Known dotted names and their segments. Immutable. A failing look-up costs at most some 1 ms, because publishers
    wait for it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._segments: set[str] = set()
        self._by_key: dict[str, str] = {}
        self._by_length: defaultdict[int, list[tuple[str, frozenset[str]]]] = defaultdict(list)
        for name in names:
            for segment in name.split("."):
                if segment and segment not in self._segments and "<" not in name:
                    self._segments.add(segment)
                    self._by_key.setdefault(word_key(segment), segment)
                    self._by_length[len(segment)].append((segment, frozenset(segment)))

    def __contains__(self, name: str) -> bool:
        """Returns whether each segment of a dotted name is known."""
        return all(segment in self._segments for segment in name.split("."))

    def nearest(self, name: str) -> str | None:
        """Returns `name` with each unknown segment replaced by the nearest known one. None if no segment is unknown, or
        if an unknown segment has no near one.

        >>> known = NearNames(["price", "seller.email", "listPrice"])
        >>> known.nearest("prize"), known.nearest("seler.email"), known.nearest("list_price"), known.nearest("colour")
        ('price', 'seller.email', 'listPrice', None)
        """
        if "<" in name or name in self:
            return None
        found: list[str] = []
        for segment in name.split("."):
            near = segment if segment in self._segments else self._near(segment)
            if near is None:
                return None
            found.append(near)
        return ".".join(found)

    def _near(self, segment: str) -> str | None:
        same = self._by_key.get(word_key(segment))
        if same is not None:
            return same
        wrong = 0 if len(segment) < SHORTEST else 1 if len(segment) < LONG else 2
        if not wrong:
            return None
        letters = frozenset(segment)
        lengths = [len(segment) + each for each in (0, -1, 1, -2, 2)[: 1 + 2 * wrong]]
        looked_at = islice(chain.from_iterable(self._by_length.get(each, ()) for each in lengths), MOST_LOOKED_AT)
        alike = (known for known, its in looked_at if len(its ^ letters) <= 2 * wrong and _may_be_near(known, segment))
        compared = ((_distance(known, segment, wrong), known) for known in islice(alike, MOST_COMPARED))
        best = min(compared, default=None)
        return best[1] if best is not None and best[0] <= wrong else None


def word_key(text: str) -> str:
    """Returns a key that is equal for spellings of one word: without case, hyphens, underscores and plural ending.

    >>> word_key("list_price") == word_key("listPrices"), word_key("Galaxies") == word_key("galaxy")
    (True, True)
    """
    key = text.casefold().replace("_", "").replace("-", "").replace(" ", "")
    if len(key) > 4 and key.endswith("ies"):
        return key[:-3] + "y"
    return key[:-1] if len(key) > 3 and key.endswith("s") and not key.endswith("ss") else key


def _may_be_near(known: str, other: str) -> bool:
    """Returns whether a comparison is worthwhile. Typos are rarely in the first letter alone (`height` is no typo of
    `weight`), and never in digits alone."""
    if known[0].casefold() != other[0].casefold() and known[:1] != other[1:2] and known[1:2] != other[:1]:
        return False
    return [c for c in known if not c.isdigit()] != [c for c in other if not c.isdigit()]


def _distance(one: str, other: str, most: int) -> int:
    """Returns the number of letters to insert, remove, replace or swap with a neighbour; `most + 1` if it exceeds
    `most`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == its:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
