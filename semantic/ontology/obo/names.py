"""OBO ids to IRIs, by the rules of OBO 1.4 as the OWL tools apply them, so that an OBO file and its OWL twin agree.

CL:0000084              http://purl.obolibrary.org/obo/CL_0000084
CL:part_of              http://purl.obolibrary.org/obo/CL#_part_of        a local name with an underscore
FMA:123                 …123 behind what `idspace: FMA …` says
part_of                 http://purl.obolibrary.org/obo/cl#part_of         in `ontology: cl`
part_of, xref BFO:50    http://purl.obolibrary.org/obo/BFO_50             a relation that is called so only here
http://e.org/x          itself
_:genid7                a blank node
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import pyoxigraph as ox

from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.namespaces import OBO, local_name

__all__ = ["IDSPACE_LENGTH", "OBO", "OboNames", "expansion"]

IDSPACE_LENGTH: Final = 512  # characters of the IRI of an idspace: every id may stand for one

_URL = re.compile(r"(?:https?|ftp|urn|file|mailto):\S", re.IGNORECASE)
_PREFIXED = re.compile(r"([^\s:]+):(\S+)")
_SAFE: Final = "!$&'()*+,;=:@/?-._~%"  # characters of a local name that an IRI may hold as they are
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class OboNames:
    """The names of one document. `idspaces` are prefix → IRI; `shorthands` relation id → the id it stands for;
    `ontology` is what the header calls the document, else `base` begins the names that have no prefix."""

    def __init__(self, ontology: str, base: str) -> None:
        self.idspaces: dict[str, str] = {}
        self.shorthands: dict[str, str] = {}
        self.ontology = self._ontology(ontology, base)
        self._own = f"{ontology if _URL.match(ontology) else OBO + _escaped(ontology)}#" if ontology else base
        self.underscored: dict[str, str] = {}  # prefix of ids like CL:part_of -> what comes before `part_of`
        self._known: dict[str, ox.NamedNode | ox.BlankNode] = {}

    def node(self, name: str) -> ox.NamedNode | ox.BlankNode:
        """The node that `name` (unescaped) stands for. Raises ValueError where no IRI can be made of it."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._node(name)
        return found

    def document(self, name: str) -> ox.NamedNode:
        """The IRI of an imported document: a URL, or the name that an ontology has in OBO."""
        if _URL.match(name):
            return ox.NamedNode(name)
        stem = name.removesuffix(".obo").removesuffix(".owl")
        return ox.NamedNode(OBO + _escaped(stem) + ".owl")

    def _node(self, name: str) -> ox.NamedNode | ox.BlankNode:
        name = self.shorthands.get(name, name)
        if name.startswith("_:"):
            return ox.BlankNode("obo_" + re.sub(r"\W", lambda found: f"-{ord(found[0]):x}-", name[2:]))
        if _URL.match(name):
            return ox.NamedNode(name)
        prefixed = _PREFIXED.fullmatch(name)
        if prefixed is None:
            if not name or ":" in name or any(character.isspace() for character in name):
                raise ValueError("an id is a prefix, a colon and a local name, or one word")
            return ox.NamedNode(self._own + _escaped(name))
        prefix, local = prefixed.groups()
        namespace = self.idspaces.get(prefix) or ns.WELL_KNOWN_PREFIXES.get(prefix)
        if namespace is None and "_" in local:
            namespace = self.underscored[prefix] = f"{OBO}{_escaped(prefix)}#_"
        return ox.NamedNode((namespace or f"{OBO}{_escaped(prefix)}_") + _escaped(local))

    def _ontology(self, name: str, base: str) -> ox.NamedNode:
        try:
            return self.document(name) if name else ox.NamedNode(base)
        except ValueError:
            return ox.NamedNode(base)


def _escaped(local: str) -> str:
    """`local` with what an IRI cannot hold as percent escapes; escapes that are there stay."""
    return _PERCENT.sub("%25", quote(local, safe=_SAFE))


def expansion(name: str, references: Sequence[str]) -> str | None:
    """The id that the relation `name` stands for, by its cross references: that of RO or BFO first, else the first. An
    address counts where it ends in `name`: most are links to read on.

    >>> expansion("part_of", ["OBO_REL:part_of", "BFO:0000050"]), expansion("RO:1", ["BFO:1"])
    ('BFO:0000050', None)
    """
    if ":" in name:
        return None
    ids = [
        each for each in references if _PREFIXED.fullmatch(each) and (not _URL.match(each) or local_name(each) == name)
    ]
    best = next((each for each in ids if each.startswith(("BFO:", "RO:"))), None)
    return best or (ids[0] if ids else None)
