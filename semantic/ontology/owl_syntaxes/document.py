"""A document in functional syntax or OWL/XML: guarded, read axiom by axiom, written as triples."""

from collections.abc import Iterator

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import xml_guard
from kindcast.semantic.ontology.oddities import Oddities
from kindcast.semantic.ontology.owl_syntaxes.axioms import Axioms
from kindcast.semantic.ontology.owl_syntaxes.expressions import Names
from kindcast.semantic.ontology.owl_syntaxes.functional import functional_expressions
from kindcast.semantic.ontology.owl_syntaxes.owl_xml import xml_expressions
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.triple_writer import TripleWriter

__all__ = ["OwlDocument"]


class OwlDocument:
    """One document. `prefixes` and `warnings` are complete after all triples were read. Linear; memory: one axiom.

    Raises OntologyError with the line, from the constructor (XML that a guard refuses) and while reading.
    """

    def __init__(self, data: bytes, syntax: str, base: str, limits: Limits) -> None:
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._xml = syntax == "owl-xml"
        self._data = xml_guard.inspect(data, limits).data if self._xml else data.removeprefix(b"\xef\xbb\xbf")
        self._base = base
        self._limits = limits

    def triples(self) -> Iterator[ox.Quad]:
        """Every triple, in document order."""
        odd = Oddities()
        names = Names(self._base, self._limits.iri)
        writer = TripleWriter()
        axioms = Axioms(writer, odd)
        if self._xml:
            expressions = xml_expressions(self._data, names, odd)
        else:
            expressions = functional_expressions(self._text(), names, odd, self._limits)
        for axiom in expressions:
            axioms.write(axiom)
            yield from writer.taken()
        self.prefixes = dict(names.declared)
        self.warnings = list(odd.warnings())

    def _text(self) -> str:
        try:
            return self._data.decode()
        except UnicodeDecodeError as error:
            line = self._data.count(b"\n", 0, error.start) + 1
            raise OntologyError("the document is not in UTF-8", line=line) from error
