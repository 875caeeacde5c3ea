"""Every way to write the name of a relation: the levels of `kindcast.semantic.ontology.requested_relations`."""

import difflib
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kindcast.semantic.ontology.iris import local_name

__all__ = ["RelationNames"]

LONGEST = 4_096  # characters of a name that is looked up: no label is longer, and folding costs by the character


class RelationNames:
    """Every way to write every relation. Immutable; a look-up costs a few dict accesses.

    >>> names = RelationNames({"http://purl.obolibrary.org/obo/BFO_0000050": ["part of"]}, [])
    >>> names.meant("part_of") == names.meant("BFO:0000050") == ("http://purl.obolibrary.org/obo/BFO_0000050",)
    True
    """

    def __init__(self, labels: Mapping[str, Iterable[str]], prefixes: Iterable[tuple[str, str]]) -> None:
        """`labels` are those of each relation, by IRI; `prefixes` are (prefix, namespace)."""
        self._known = frozenset(labels)
        self._local: defaultdict[str, list[str]] = defaultdict(list)
        self._labels: defaultdict[str, list[str]] = defaultdict(list)
        self._shown: dict[str, str] = {}
        for iri, texts in sorted(labels.items()):
            local = local_name(iri)
            self._local[local].append(iri)
            for text in (local, *texts):
                self._shown.setdefault(_folded(text), text)
            for fold in {_folded(text) for text in texts}:
                self._labels[fold].append(iri)
        self._prefixes: defaultdict[str, list[str]] = defaultdict(list)
        for prefix, namespace in sorted(set(prefixes)):
            self._prefixes[prefix].append(namespace)

    def meant(self, name: str) -> tuple[str, ...]:
        """The IRIs that `name` may mean, sorted: none, one, or several of the first level with a hit."""
        if name in self._known:
            return (name,)
        if not name or len(name) > LONGEST:
            return ()
        prefix, colon, rest = name.partition(":")
        if colon:
            spelt_out = {space + rest for space in self._prefixes.get(prefix, ())} & self._known
            if spelt_out:
                return tuple(sorted(spelt_out))
        found = self._local.get(f"{prefix}_{rest}" if colon else name) or self._labels.get(_folded(name))
        return tuple(sorted(found or ()))

    def near(self, name: str, most: int = 5) -> tuple[str, ...]:
        """The names that look most like `name`."""
        folds = difflib.get_close_matches(_folded(name[:200]), self._shown, n=most, cutoff=0.6)
        return tuple(dict.fromkeys(self._shown[fold] for fold in folds))


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text.replace("_", " "))
    return " ".join(unicodedata.normalize("NFKC", text.casefold()).split())
