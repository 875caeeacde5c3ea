"""SSSOM mapping files: a table of which name means the same as, or is beneath, which; tabs or commas, with a header in
YAML of which only the prefixes matter.

    #curie_map:
    #  HP: http://purl.obolibrary.org/obo/HP_
    subject_id    predicate_id     object_id         mapping_justification
    HP:0008551    skos:exactMatch  MP:0000018        semapv:LexicalMatching

Predicates that make names one or put one beneath another become the triples that they are; all others, negated rows,
and rows without a term are left out and counted.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.obo import OBO
from kindcast.semantic.ontology.records import DocumentWarnings, Limits, shown

__all__ = ["SssomDocument"]

COLUMNS: Final = ("subject_id", "predicate_id", "object_id")
COUNTED: Final = (
    ns.BROADER
    | ns.NARROWER
    | ns.INDIVIDUAL_EQUIVALENCES
    | {ns.EQUIVALENT_CLASS, ns.EQUIVALENT_PROPERTY, ns.SUB_PROPERTY}
)
"""Predicates that say something about meaning."""
LINE: Final = 1 << 20  # characters of a line of the table; real ones have some hundreds
PREDICATES: Final = 20  # that are told of, those of most rows first

_KEY = re.compile(r"(\s*)([\w.-]+)\s*:(?:\s+(.*))?$")
_PAIR = re.compile(r"""["']?([\w.-]+)["']?\s*:\s+(?:"([^"]*)"|'([^']*)'|([^\s,{}"']+))""")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+", re.IGNORECASE)
_OBO_ID = re.compile(r"([A-Za-z][A-Za-z_]*):([0-9]+)")


class SssomDocument:
    """One mapping file. `prefixes` and `warnings` are complete after all triples were read. Linear.

    Raises OntologyError with the line where it is no such table.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._data = data.removeprefix(b"\xef\xbb\xbf")
        self._limits = limits

    def triples(self) -> Iterator[ox.Quad]:
        """The mappings that count, in the order of the rows."""
        noted = DocumentWarnings()
        left_out: Counter[str] = Counter()
        self.prefixes = {}
        rows = self._rows(self._text())
        line, columns = next(rows, (1, []))
        places = [columns.index(each) for each in COLUMNS if each in columns]
        if len(places) < len(COLUMNS):
            missing = ", ".join(each for each in COLUMNS if each not in columns)
            raise OntologyError(f"this is not an SSSOM table: column {missing} is missing", line=line)
        modifier = columns.index("predicate_modifier") if "predicate_modifier" in columns else None
        for line, row in rows:
            if len(row) <= max(places):
                noted.add(line, "short row", f"the row has {len(row)} of {len(columns)} fields and was left out")
                continue
            if modifier is not None and len(row) > modifier and row[modifier].strip():
                left_out[f"{row[modifier].strip()[:40]} {row[places[1]].strip()[:80]}"] += 1
                continue
            names = [self._name(row[place].strip(), line, noted) for place in places]
            subject, predicate, value = names
            if subject is None or predicate is None or value is None:
                continue
            if predicate.value not in COUNTED:
                left_out[row[places[1]].strip()[:80]] += 1
            elif subject != value:
                yield ox.Quad(subject, predicate, value)
        self.warnings = [*noted.texts(), *_told(left_out)]

    def _text(self) -> str:
        try:
            return self._data.decode()
        except UnicodeDecodeError as error:
            line = self._data.count(b"\n", 0, error.start) + 1
            raise OntologyError("the document is not in UTF-8", line=line) from error

    def _rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """(line from 1, fields) of the table, its head first; the lines of the header are taken in on the way."""
        file = io.StringIO(text, newline="")
        header: list[str] = []
        before = 0
        first = ""
        for first in file:
            before += 1
            if first.strip() and not first.startswith("#"):
                break
            header.append(first[1:].rstrip())
        self._header(header)
        table = csv.reader(_after(first, file, before), delimiter="\t" if "\t" in first else ",")
        try:
            for row in table:
                if row and not row[0].startswith("#"):
                    yield before - 1 + table.line_num, row
        except csv.Error as error:
            raise OntologyError(f"the table is damaged: {error}", line=before - 1 + table.line_num) from error

    def _header(self, lines: Sequence[str]) -> None:
        """The prefixes of `curie_map`, in block or flow style."""
        inside: int | None = None  # how far `curie_map` is indented, while it goes on
        for number, line in enumerate(lines, 1):
            key = _KEY.match(line)
            indent = len(key[1]) if key else None
            if inside is not None and (indent is None or indent > inside or line.lstrip().startswith(("}", '"', "'"))):
                self._declare(line, number)
            elif key and key[2] == "curie_map":
                inside = len(key[1])
                self._declare(key[3] or "", number)
            elif key:
                inside = None

    def _declare(self, text: str, line: int) -> None:
        for found in _PAIR.finditer(text):
            iri = next(each for each in found.groups()[1:] if each is not None)
            if len(iri) > self._limits.iri:
                raise OntologyError(f"a prefix is longer than {self._limits.iri:,} characters", line=line)
            self.prefixes[found[1]] = iri

    def _name(self, text: str, line: int, noted: DocumentWarnings) -> ox.NamedNode | None:
        """The node of a CURIE or an IRI; None, and a warning, where there is none."""
        prefix, colon, local = text.partition(":")
        iri = None
        if prefix in self.prefixes and colon:
            iri = self.prefixes[prefix] + local
        elif prefix in ns.WELL_KNOWN_PREFIXES and colon:
            iri = ns.WELL_KNOWN_PREFIXES[prefix] + local
        elif _IRI.fullmatch(text.strip("<>")):
            iri = text.strip("<>")
        elif short := _OBO_ID.fullmatch(text):
            iri = f"{OBO}{short[1]}_{short[2]}"
            noted.add(line, "prefix", f"prefix {shown(prefix)} is not in the curie_map and was read as an OBO prefix")
        if iri is None:
            noted.add(line, "no term", f"{shown(text)} is not a term: the row was left out")
            return None
        if prefix == "sssom" and local == "NoTermFound":
            noted.add(line, "no term found", "the row says that there is no such term; it was left out")
            return None
        try:
            if len(iri) > self._limits.iri:
                raise ValueError(f"it has more than {self._limits.iri:,} characters")
            return ox.NamedNode(iri)
        except ValueError as error:
            noted.add(line, "no IRI", f"{shown(iri)} is not an IRI, so the row was left out: {error}")
            return None


def _after(first: str, file: io.StringIO, number: int) -> Iterator[str]:
    """The lines of the table; `number` is that of the first."""
    for at, line in enumerate(chain([first] if first and not first.startswith("#") else [], file), number):
        if len(line) > LINE:
            raise OntologyError(f"the line has more than {LINE:,} characters", line=at)
        yield line


def _told(left_out: Counter[str]) -> Iterator[str]:
    for predicate, count in sorted(left_out.items(), key=lambda item: (-item[1], item[0]))[:PREDICATES]:
        yield f"{count:,} mapping{'s' if count > 1 else ''} with {predicate} left out: no effect on the hierarchy"
