"""Systems of codes: which concept a code means (docs/matching-semantics.md, rule 22).

    {"identifiers": ["http://human-phenotype-ontology.org", "http://purl.obolibrary.org/obo/HP_"],
     "iri": [{"match": "HP:([0-9]{7})", "as": "http://purl.obolibrary.org/obo/HP_{1}"}]}

A code is a concept of its system by its IRI, where the declaration says how that is made, or by its notation, where the
concept is in a scheme, or has an IRI in a namespace, that is one of the identifiers of the system. A scheme of which
nothing is declared is a system under its own IRI.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.ontology.iris import NOTATION, NOTATIONS, local_name
from kindcast.semantic.ontology.records import ConceptRecord
from kindcast.semantic.vocabulary.identifier_patterns import IdentifierPattern, identifier_patterns

__all__ = ["CodeSystem", "CodeSystems", "code_system"]

KEYS: Final = frozenset({"identifiers", "iri", "notation"})
PLACE: Final = "{code}"
MOST_IDENTIFIERS = 32
LONGEST = 200
"""Characters of a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSystem:
    """A declared system. `template` has `{code}` where the code stands in an IRI; `patterns` give the IRI of a code
    that they match; `notation` is the property that holds the codes of concepts."""

    name: str
    identifiers: tuple[str, ...]
    template: str | None = None
    patterns: tuple[IdentifierPattern, ...] = ()
    notation: str = NOTATION

    def iris(self, code: str) -> tuple[str, ...]:
        """The IRIs that the code may stand for."""
        if self.template is not None:
            return (self.template.replace(PLACE, code),)
        return tuple(found for each in self.patterns if (found := each.reading(code)) is not None)


def code_system(name: str, declared: Any) -> CodeSystem:
    """Raises InvalidDeclaration."""
    what = f"code system {name!r}"
    if not isinstance(declared, Mapping) or declared.keys() - KEYS:
        raise InvalidDeclaration(f"{what}: an object with {', '.join(sorted(KEYS))} is expected")
    given = declared.get("identifiers")
    identifiers = tuple(given) if isinstance(given, list | tuple) else (given,)
    is_bounded = 0 < len(identifiers) <= MOST_IDENTIFIERS
    if not is_bounded or not all(isinstance(each, str) and each for each in identifiers):
        raise InvalidDeclaration(f"{what}: identifiers are 1 to {MOST_IDENTIFIERS} URIs or OIDs of the system")
    iri, notation = declared.get("iri"), declared.get("notation", NOTATION)
    if notation not in NOTATIONS:
        raise InvalidDeclaration(f"{what}: notation is one of {', '.join(NOTATIONS)}")
    template: str | None = None
    patterns: tuple[IdentifierPattern, ...] = ()
    if isinstance(iri, str):
        if PLACE not in iri:
            raise InvalidDeclaration(f"{what}: iri needs {PLACE} at the place of the code")
        template = iri
    elif iri is not None:
        patterns = identifier_patterns(what, "iri", iri)
    return CodeSystem(name=name, identifiers=identifiers, template=template, patterns=patterns, notation=notation)


class CodeSystems:
    """All systems of one vocabulary. Immutable; a look-up costs some dict accesses."""

    def __init__(
        self,
        declared: Mapping[str, Any] | None,
        records: Callable[[], Iterable[ConceptRecord]],
        main: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`records` are those of all concepts, gone through once when a code is first looked up; `main` gives the main
        form of an identifier that has aliases (rule 24). Raises InvalidDeclaration."""
        self._main = main
        self._declared = tuple(code_system(name, each) for name, each in (declared or {}).items())
        self._of: dict[str, CodeSystem] = {}
        for each in self._declared:
            for identifier in (*each.identifiers, each.name):
                known = self._of.setdefault(main(identifier), each)
                if known is not each:
                    raise InvalidDeclaration(
                        f"code system {each.name!r}: {identifier} identifies {known.name!r} already"
                    )
        self._records = records
        self._coded: dict[tuple[str, str], dict[str, tuple[str, ...]]] | None = None

    @property
    def declared(self) -> dict[str, CodeSystem]:
        """The declared systems, by name."""
        return {each.name: each for each in self._declared}

    def names_in(self, system: str, names: Iterable[str]) -> Iterator[str]:
        """Those of `names` that some code of a declared system may mean. Linear in `names`."""
        declared, coded = self._of[self._main(system)], self._by_notation()
        noted = {
            iri
            for identifier in declared.identifiers
            for iris in coded.get((self._main(identifier), declared.notation), {}).values()
            for iri in iris
        }
        forms = [declared.template] if declared.template is not None else [each.form for each in declared.patterns]
        beginnings = tuple(form.partition("{")[0] for form in forms)
        return (name for name in names if name in noted or (beginnings and name.startswith(beginnings)))

    def knows(self, system: str) -> bool:
        """Whether a system is declared under this name or identifier, or a scheme with codes."""
        system = self._main(system)
        return system in self._of or any(scheme == system for scheme, _ in self._by_notation())

    def iris(self, system: str, code: str) -> tuple[str, ...]:
        """The IRIs that a code of a system may stand for, known or not."""
        if len(code) > LONGEST:
            return ()
        system = self._main(system)
        declared = self._of.get(system)
        coded = self._by_notation()
        if declared is None:
            return coded.get((system, NOTATION), {}).get(code, ())
        found = dict.fromkeys(declared.iris(code))
        for identifier in declared.identifiers:
            found.update(dict.fromkeys(coded.get((self._main(identifier), declared.notation), {}).get(code, ())))
        return tuple(found)

    def _by_notation(self) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
        """(scheme or namespace, property) → code → IRIs. Two threads may both build it."""
        if self._coded is None:
            coded: defaultdict[tuple[str, str], dict[str, tuple[str, ...]]] = defaultdict(dict)
            spaces = tuple(identifier for each in self._declared for identifier in each.identifiers)
            for record in self._records():
                if not record.notations:
                    continue
                names = {record.iri, self._main(record.iri)}
                within = {self._main(each) for each in record.schemes}
                within |= {self._main(each) for each in spaces if any(_is_in(name, each) for name in names)}
                for holder, code in record.notations:
                    for each in within:
                        codes = coded[each, holder]
                        codes[code] = (*codes.get(code, ()), record.iri)
            self._coded = dict(coded)
        return self._coded


def _is_in(iri: str, namespace: str) -> bool:
    """Whether `namespace` is that of a name: all before its local name, of OBO's with the prefix (`…/obo/HP_`)."""
    local = local_name(iri)
    return iri.startswith(namespace) and len(namespace) >= len(iri) - len(local)
