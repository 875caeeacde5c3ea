"""Compilation of JSON-LD contexts: a document is read into trees directly, without the expanded form.

A stream repeats its contexts, and the names of its objects. So each context is processed once (by PyLD, through
`reference`), and the names of an object under a context are resolved once for each sequence of names:

    the context of a document ──▶ terms: the meaning of names, types and scoped contexts
    the names of an object, in order ──▶ a shape: its members with the IRIs of their properties, and how to read them
    {"@id": …, "weight": 12.5, …} ──▶ Node {"@id": …, "<http://…#weight>": 12.5, …}

The trees are those that `unfolded` builds from PyLD's expanded form. For a document that cannot be read here, `trees`
returns None, and PyLD reads the document. These are all invalid documents, so that PyLD reports what is wrong, and
documents with `@reverse`, `@included`, `@nest`, named graphs, containers by id, type or graph, indexes that are
properties, or nodes that are described in several places.
"""

import marshal
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.events.linked_data.reader import ID, INTEGERS, LANGUAGE, NO_IRI, REALS, TYPE, Link, literal_of
from kindcast.semantic.events.linked_data.reference import LONGEST_PREFIX, Expander
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.model import Node, Resource, TypedText

__all__ = ["CompiledContexts"]

KEPT = 1 << 16
"""The maximum number of cached names of shapes, types and contexts together. When it is exceeded, the caches are
cleared. They take some 30 MB at most, whatever is published."""
LONGEST_KEPT = 1_000
"""The maximum length in characters of a cached name or type."""
LARGEST_CONTEXT = 1 << 16
"""The maximum size in bytes of a context inside a document that is compiled. PyLD takes some 50 ms for this size."""
MOST_NAMES = 200
"""The maximum number of names of an object whose shape is cached."""
KEYWORDS: Final = frozenset(
    f"@{name}"
    for name in (
        "base", "container", "context", "default", "direction", "embed", "explicit", "first", "graph", "id", "import",
        "included", "index", "json", "language", "list", "nest", "none", "omitDefault", "propagate", "protected",
        "preserve", "requireAll", "reverse", "set", "type", "value", "version", "vocab",
    )
)  # fmt: skip
READ_CONTAINERS: Final = frozenset({"@set", "@list", "@language", "@index"})
ABSOLUTE: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+-.]*|_):[^\s]*$")
"""Matches an absolute IRI, by the same test as PyLD."""
CONTEXT: Final = "@context"
NODE, VALUE, SET, LIST, GRAPH = range(5)
"""The kinds of objects, determined by their names."""
DIRECT: Final = frozenset({str, int, float, bool})
"""The types of JSON scalars."""
TEXTS_ONLY: Final = {str}
SCALARS: Final = DIRECT | {type(None)}


class _HandedOver(Exception):
    """The document must be read by PyLD."""


class _Terms:
    """A processed context. `active` is PyLD's form of it. `within`, `scoped`, `typed` and `entered` cache the contexts
    that result from it, by what leads to them."""

    __slots__ = (
        "active",
        "entered",
        "iris",
        "is_plain",
        "mappings",
        "prefixes",
        "previous",
        "reverted",
        "scoped",
        "shapes",
        "typed",
        "types",
        "within",
    )  # fmt: skip

    def __init__(self, active: Mapping[str, Any]) -> None:
        self.active = active
        self.mappings: Mapping[str, Any] = active["mappings"]
        self.prefixes = {
            term: mapping["@id"] for term, mapping in self.mappings.items() if mapping and mapping.get("_prefix")
        }
        self.previous: Mapping[str, Any] | None = active.get("previousContext")
        self.reverted: _Terms | None = None
        self.is_plain = self.previous is None and not any(
            mapping and mapping.get(CONTEXT) is not None for mapping in self.mappings.values()
        )
        """Whether no term or type has a context of its own."""
        self.shapes: dict[tuple[str, ...], _Shape] = {}
        self.types: dict[str, str | None] = {}
        self.iris: dict[str, str | None] = {}
        self.within: dict[bytes, _Terms] = {}
        self.scoped: dict[str, _Terms] = {}
        self.typed: dict[tuple[str, ...], _Terms] = {}
        self.entered: dict[tuple[str, bool], _Terms] = {}

    def scope(self, term: Any) -> Any:
        """Returns the scoped context of a term, used as a name or as a type. None if it has none; False if its context
        is null."""
        mapping = self.mappings.get(term)
        return mapping.get(CONTEXT) if mapping else None


class _Member:
    """How the values of one name are read. `coercion` and `language` are those of its term. `is_simple` says that texts
    and numbers are values without conversion."""

    __slots__ = ("coercion", "container", "is_simple", "key", "language", "name", "terms")

    def __init__(self, key: str, iri: str, container: frozenset[str], terms: _Terms) -> None:
        """`terms` is the context of the values."""
        self.key = key
        self.name = f"<{iri}>"
        self.container = container
        self.terms = terms
        mapping = terms.mappings.get(key) or {}
        is_undefined = key in terms.mappings and not mapping
        self.coercion: str | None = None if mapping.get(TYPE) == "@none" else mapping.get(TYPE)
        self.language: str | None = None if is_undefined else mapping.get(LANGUAGE, terms.active.get(LANGUAGE))
        self.is_simple = self.coercion is None and self.language is None


class _Shape:
    """The plan for an object with these names. `id`, `type`, `value` and `tag` are the names that are aliases of the
    keywords. `content` is the name of the content of a set, list or graph."""

    __slots__ = ("content", "direction", "id", "index", "kind", "members", "overlaps", "tag", "type", "value")

    def __init__(self) -> None:
        self.kind = NODE
        self.id: str | None = None
        self.type: str | None = None
        self.value: str | None = None
        self.tag: str | None = None
        self.direction: str | None = None
        self.index: str | None = None
        self.content: str | None = None
        self.members: tuple[_Member, ...] = ()
        self.overlaps = False
        """Whether two names mean the same property."""


class CompiledContexts:
    """Reads documents by compiled contexts. Not thread-safe."""

    def __init__(
        self, expander: Callable[[], Expander], limits: EventLimits, values: int, deepest: int, others: Collection[str]
    ) -> None:
        """`expander` returns the expander with the contexts. `limits` are those of one event. A document has at most
        `values` values and `deepest` levels. Documents with one of the properties `others` are left to PyLD."""
        self._expander = expander
        self._limits = limits
        self._most = values
        self._deepest = deepest
        self._others = others
        self._kept = 0
        self._contexts: dict[bytes, _Terms] = {}
        self._initial: _Terms | None = None

    def trees(self, document: Any) -> list[tuple[str, Node]] | None:
        """Returns the events of a document, each with its root (an IRI or a blank-node label) and its tree; None if
        PyLD must read it. Costs some 0.3 µs per value and 2 µs per object once shapes and contexts are cached. Raises
        `InvalidEvent` if the document is too large."""
        if self._initial is None:
            self._initial = _Terms(self._expander().active([]))
        try:
            return _Reading(self, self._limits, self._most, self._deepest).trees(document, self._initial)
        except (_HandedOver, RecursionError):
            return None

    # ── contexts ────────────────────────────────────────────────────────────────────────────────────────────────

    def local(self, terms: _Terms, context: Any) -> _Terms:
        """Returns the context of an object that states `context`. Raises `_HandedOver`."""
        if isinstance(context, dict) and len(context) == 1 and CONTEXT in context:
            raise _HandedOver
        known = self._contexts if terms is self._initial else terms.within
        try:
            key = marshal.dumps(context, 2)  # fast, and in this version equal for equal contexts
        except ValueError:
            raise _HandedOver from None
        found = known.get(key)
        if found is None:
            if len(key) > LARGEST_CONTEXT:
                raise _HandedOver
            found = self._compiled(context, terms)
            self._count(len(found.mappings) + 8 + len(key) // 64)
            known[key] = found
        return found

    def scoped(self, terms: _Terms, term: str) -> _Terms:
        """Returns the context of the values of a term. Raises `_HandedOver`."""
        if terms.is_plain or (context := terms.scope(term)) is None:
            return terms
        found = terms.scoped.get(term)
        if found is None:
            found = terms.scoped[term] = self._compiled(context, terms, overrides=True)
            self._count(len(found.mappings) + 8)
        return found

    def entered(self, terms: _Terms, term: str, element: Mapping[str, Any]) -> _Terms:
        """Returns the context of an object that is a value of `term`, before the object's own context is applied.
        Contexts of types end where another node begins. Raises `_HandedOver`."""
        key = term, terms.previous is None or self._stays(terms, element)
        found = terms.entered.get(key)
        if found is None:
            found = terms
            if not key[1] and terms.previous is not None:
                found = terms.reverted = terms.reverted or _Terms(terms.previous)
            context = terms.scope(term)
            if context is not None:
                found = self._compiled(context, found, overrides=True)
            self._count(len(found.mappings) + 8)
            terms.entered[key] = found
        return found

    def _stays(self, terms: _Terms, element: Mapping[str, Any]) -> bool:
        """Whether an object is a value object, or only a reference to a node."""
        if len(element) > 2 or CONTEXT in element:
            return False
        names = [self.name(terms, each) for each in element]
        return "@value" in names or names == [ID]

    def typed(self, terms: _Terms, types: Any) -> _Terms:
        """Returns the context of a node of these types. Raises `_HandedOver`."""
        listed = types if isinstance(types, list) else [types]
        having = (each for each in listed if isinstance(each, str) and terms.scope(each) not in (None, False))
        names = tuple(sorted(having))
        if not names:
            return terms
        found = terms.typed.get(names)
        if found is None:
            found = terms
            for each in names:
                found = self._compiled(terms.scope(each), found, propagates=False)
            self._count(len(found.mappings) + 8)
            terms.typed[names] = found
        return found

    def _compiled(self, context: Any, within: _Terms, *, overrides: bool = False, propagates: bool = True) -> _Terms:
        try:
            active = self._expander().active(context, within.active, overrides=overrides, propagates=propagates)
        except InvalidEvent:
            raise _HandedOver from None
        terms = _Terms(active)
        if any(len(iri) > LONGEST_PREFIX for iri in terms.prefixes.values()):
            raise _HandedOver
        return terms

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────────

    def name(self, terms: _Terms, key: str) -> str | None:
        """Returns the property or keyword that a name of an object means."""
        if key in terms.iris:
            return terms.iris[key]
        return self._remember(terms.iris, key, self._iri(terms, key, vocab=True, base=False))

    def type(self, terms: _Terms, text: str) -> str | None:
        """Returns the IRI of a type, or of a value that is a term of the vocabulary."""
        if text in terms.types:
            return terms.types[text]
        return self._remember(terms.types, text, self._iri(terms, text, vocab=True, base=True))

    def reference(self, terms: _Terms, text: str) -> str | None:
        """Returns the IRI of a node."""
        colon = text.find(":")
        if colon > 0:
            prefix = text[:colon]
            if prefix == "_" or text.startswith("//", colon + 1):
                return text
            iri = terms.prefixes.get(prefix)
            if iri is not None:
                return f"{iri}{text[colon + 1 :]}"
            if ABSOLUTE.match(text):
                return text
        return self._iri(terms, text, vocab=False, base=True)

    def _iri(self, terms: _Terms, text: str, *, vocab: bool, base: bool) -> str | None:
        try:
            return self._expander().iri(terms.active, text, vocab=vocab, base=base)
        except (ValueError, TypeError, AttributeError):
            raise _HandedOver from None

    def _remember(self, known: dict[str, str | None], text: str, found: str | None) -> str | None:
        if len(text) <= LONGEST_KEPT:
            self._count(1)
            known[text] = found
        return found

    # ── shapes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def shape(self, terms: _Terms, element: Mapping[str, Any]) -> _Shape:
        """Returns the shape of an object with the names of `element`. Raises `_HandedOver`."""
        names = tuple(element)
        found = terms.shapes.get(names)
        if found is None:
            found = self._made(terms, names)
            if len(names) <= MOST_NAMES and sum(map(len, names)) <= LONGEST_KEPT * 10:
                self._count(len(names) + 1)
                terms.shapes[names] = found
        return found

    def _made(self, terms: _Terms, names: tuple[Any, ...]) -> _Shape:
        shape = _Shape()
        members: list[_Member] = []
        properties: set[str] = set()
        if not all(type(each) is str for each in names):
            raise _HandedOver
        for key in sorted(names):  # the order of PyLD, so that values of one property have the same order
            iri = None if key == CONTEXT else self.name(terms, key)
            if iri is None:
                continue
            mapping = terms.mappings.get(key) or {}
            if iri in KEYWORDS:
                self._keyword(shape, key, iri, mapping)
            elif ABSOLUTE.match(iri):
                member = self._member(terms, key, iri, mapping)
                shape.overlaps |= iri in properties
                properties.add(iri)
                members.append(member)
        shape.members = tuple(members)
        if shape.value is not None:
            shape.kind = VALUE
            if members or shape.id or shape.content or (shape.type and (shape.tag or shape.direction)):
                raise _HandedOver
        elif (
            shape.tag is not None
            or shape.direction is not None
            or (shape.content is not None and (members or shape.id or shape.type))
        ):
            raise _HandedOver
        return shape

    def _member(self, terms: _Terms, key: str, iri: str, mapping: Mapping[str, Any]) -> _Member:
        given = mapping.get("@container") or ()
        container = frozenset((given,) if isinstance(given, str) else given)
        inside = self.scoped(terms, key)
        member = _Member(key, iri, container, inside)
        is_json = "@json" in (member.coercion, mapping.get(TYPE))  # also if the scoped context defines it otherwise
        if (
            not container <= READ_CONTAINERS
            or "@index" in mapping
            or (inside.mappings.get(key) or mapping).get("reverse")
            or (is_json and (container - {"@set"} or inside is not terms))
            or NO_IRI.search(iri)
            or iri in self._others
        ):
            raise _HandedOver
        return member

    def _keyword(self, shape: _Shape, key: str, keyword: str, mapping: Mapping[str, Any]) -> None:
        if mapping.get("@container") and keyword != TYPE:
            raise _HandedOver
        match keyword:
            case "@id" if shape.id is None:
                shape.id = key
            case "@type" if shape.type is None:
                shape.type = key
            case "@value" if shape.value is None:
                shape.value = key
            case "@language" if shape.tag is None:
                shape.tag = key
            case "@direction" if shape.direction is None:
                shape.direction = key
            case "@index" if shape.index is None:
                shape.index = key
            case "@set" | "@list" | "@graph" if shape.content is None and mapping.get(CONTEXT) is None:
                shape.content = key
                shape.kind = {"@set": SET, "@list": LIST, "@graph": GRAPH}[keyword]
            case _:
                raise _HandedOver

    def _count(self, more: int) -> None:
        self._kept += more
        if self._kept > KEPT:
            self._contexts.clear()
            if self._initial is not None:
                self._initial = _Terms(self._initial.active)
            self._kept = more


class _Reading:
    """The state of reading one document."""

    def __init__(self, contexts: CompiledContexts, limits: EventLimits, values: int, deepest: int) -> None:
        self._contexts = contexts
        self._limits = limits
        self._left = 0
        self._left_in_document = values
        self._most = values
        self._deepest = deepest
        self._described: dict[str, Node] = {}
        """The nodes that have statements, by IRI or label."""
        self._labels: dict[int, str] = {}
        """Labels of blank nodes, by the identity of their nodes."""
        self._named: set[str] = set()
        """The IRIs that references name."""
        self._is_linked = False
        """Whether a tree contains a `Link`."""

    def trees(self, document: Any, initial: _Terms) -> list[tuple[str, Node]]:
        """Returns the events of the document. Raises `_HandedOver` and `InvalidEvent`."""
        roots: dict[str, Node] = {}
        if type(document) is dict:
            terms, types, shape = self._begun(document, initial, 0)
            if shape.kind == GRAPH:
                content = document[shape.content or ""]
                if shape.index is not None or not isinstance(content, dict | list) or terms.previous is not None:
                    raise _HandedOver
                self._top(content, terms, 1, roots)
            else:
                self._root(document, terms, types, shape, 0, roots)
        elif type(document) is list:
            self._top(document, initial, 0, roots)
        else:
            raise _HandedOver
        if self._is_linked or not self._named.isdisjoint(self._described):
            unfolding = _Unfolding(self._limits, self._described, self._labels, roots)
            return [(key, unfolding.root(key, node)) for key, node in roots.items()]
        return list(roots.items())

    def _top(self, element: Any, terms: _Terms, level: int, roots: dict[str, Node]) -> None:
        """Reads the top-level node objects. Scalars are ignored."""
        if type(element) is list:
            self._enter(element, level)
            for each in element:
                self._top(each, terms, level + 1, roots)
        elif type(element) is dict:
            self._root(element, *self._begun(element, terms, level), level, roots)
        elif type(element) not in SCALARS:
            raise _HandedOver

    def _root(
        self, element: dict[str, Any], terms: _Terms, types: _Terms, shape: _Shape, level: int, roots: dict[str, Node]
    ) -> None:
        """Adds a top-level node, unless it has no statement."""
        if shape.kind != NODE:
            raise _HandedOver
        self._left = self._limits.values
        node, key, _, is_stated = self._node(element, terms, types, shape, level, 0)
        if is_stated:
            key = key or f"_:-{len(roots) + 1}"
            if key in roots:
                raise _HandedOver
            roots[key] = node

    def _begun(self, element: dict[str, Any], terms: _Terms, level: int) -> tuple[_Terms, _Terms, _Shape]:
        """Returns the context of an object, the context of its types, and its shape."""
        self._enter(element, level)
        if CONTEXT in element:
            terms = self._contexts.local(terms, element[CONTEXT])
        shape = terms.shapes.get(tuple(element)) or self._contexts.shape(terms, element)
        types = terms
        if shape.type is not None and not terms.is_plain:
            terms = self._contexts.typed(terms, element[shape.type])
            if terms is not types:
                inner = self._contexts.shape(terms, element)
                if inner.type != shape.type:
                    raise _HandedOver
                shape = inner
        return terms, types, shape

    def _enter(self, container: Any, level: int) -> None:
        self._left_in_document -= len(container)
        if self._left_in_document < 0:
            detail = f"more than {self._most:,} values in one document: send smaller documents"
            raise InvalidEvent([Problem("too-many-values", detail)])
        if level > self._deepest:
            raise _HandedOver

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _node(
        self, element: dict[str, Any], terms: _Terms, types_in: _Terms, shape: _Shape, level: int, depth: int
    ) -> tuple[Node, str | None, bool, bool]:
        """Returns the tree of a node object, its IRI or label, whether it has statements, and whether its expanded form
        has more than an `@id`. `depth` is the number of nodes around it."""
        if shape.index is not None and type(element[shape.index]) is not str:
            raise _HandedOver
        key = None if shape.id is None else self._key(element[shape.id], terms)
        iri = None if key is None or key.startswith("_:") else key
        types = self._types(element[shape.type], types_in) if shape.type is not None else ()
        node = Node(None, Resource(iri, types) if iri is not None or types else None)
        if iri is not None:
            node[ID] = Resource(iri)
            self._left -= 1
        if types:
            node[TYPE] = Resource(types[0]) if len(types) == 1 else [Resource(each) for each in types]
            self._left -= 1 + len(types)
        has_values, has_members = self._members(node, element, shape, level + 1, depth)
        is_described = has_values or bool(types)
        if is_described:
            self._check_limits(depth)
            if key is not None:
                self._describe(key, node)
        has_type = shape.type is not None and element[shape.type] != []
        return node, key, is_described, is_described or has_members or has_type or shape.index is not None

    def _key(self, given: Any, terms: _Terms) -> str | None:
        """Returns the IRI or label of a node."""
        if type(given) is not str:
            raise _HandedOver
        return self._contexts.reference(terms, given)

    def _members(self, node: Node, element: dict[str, Any], shape: _Shape, level: int, depth: int) -> tuple[bool, bool]:
        """Reads the members of an object into its node. Returns whether they have values, and whether one is not null.

        Values without conversion are read here, because most are."""
        left = self._left
        has_values = has_members = False
        tags: Tags = {}
        together: dict[str, Statements] | None = {} if shape.overlaps else None
        for member in shape.members:
            value = element[member.key]
            if value is None:
                if member.coercion == "@json":
                    raise _HandedOver
                continue
            has_members = True
            if member.is_simple and together is None:
                if type(value) in DIRECT:
                    node[member.name] = value
                    left -= 2
                    has_values = True
                    continue
                if type(value) is list and set(map(type, value)) == TEXTS_ONLY:
                    self._enter(value, level)
                    texts = value[:] if "@list" in member.container else list(dict.fromkeys(value))
                    node[member.name] = texts[0] if len(texts) == 1 else texts
                    left -= 1 + len(texts)
                    has_values = True
                    continue
            found: Statements = {} if together is None else together.setdefault(member.name, {})
            self._left = left
            self._member(member, value, found, tags, level, depth)
            left = self._left
            if together is None and found:
                has_values = True
                left -= _put(node, member.name, found)
        for name, each in together.items() if together is not None else ():
            if each:
                has_values = True
                left -= _put(node, name, each)
        for name, said in tags.items():
            node[f"{name}.{LANGUAGE}"] = next(iter(said)) if len(said) == 1 else list(said)
            left -= len(said)
        self._left = left
        return has_values, has_members

    def _check_limits(self, depth: int) -> None:
        if depth > self._limits.depth:
            raise self._limits.too_deep()
        if self._left < 0:
            raise self._limits.too_many_values()

    def _describe(self, key: str, node: Node) -> None:
        """Notes that the node with this IRI or label has statements."""
        if key in self._described:
            raise _HandedOver  # descriptions in several places belong to one node
        self._described[key] = node
        if key.startswith("_:"):
            self._labels[id(node)] = key

    def _types(self, given: Any, terms: _Terms) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for each in given if type(given) is list else (given,):
            iri = self._contexts.type(terms, each) if type(each) is str else None
            if iri is None:
                raise _HandedOver
            if not iri.startswith("_:"):
                found[iri] = None
        return tuple(found)

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _member(self, member: _Member, value: Any, found: "Statements", tags: "Tags", level: int, depth: int) -> None:
        """Adds the values that a member states."""
        container = member.container
        if member.coercion == "@json":
            self._json(value, found)
        elif type(value) is dict and "@language" in container:
            self._language_map(member, value, found, tags, level)
        elif type(value) is dict and "@index" in container:
            self._enter(value, level)
            if member.terms.previous is not None or "@list" in container or not _has_names(value):
                raise _HandedOver
            for _, each in sorted(value.items()):
                self._values(member, each, found, tags, level + 1, depth)
        elif "@list" in container:
            listed: Statements = {}
            self._values(member, value, listed, tags, level, depth, in_list=True)
            _add_list(found, listed.values())
        else:
            self._values(member, value, found, tags, level, depth)

    def _values(
        self,
        member: _Member,
        value: Any,
        found: "Statements",
        tags: "Tags",
        level: int,
        depth: int,
        *,
        in_list: bool = False,
    ) -> None:
        """Adds a value, or the values of an array."""
        kind = type(value)
        if kind is list:
            self._enter(value, level)
            for each in value:
                self._values(member, each, found, tags, level + 1, depth, in_list=in_list)
        elif kind is dict:
            self._object(member, value, found, tags, level, depth, in_list=in_list)
        elif kind is str:
            _add(found, self._text(member, value, tags), in_list=in_list)
        elif kind in DIRECT:
            datatype = member.coercion
            is_number = datatype is None or datatype in (ID, "@vocab") or datatype in REALS or datatype in INTEGERS
            read = value if is_number or kind is bool else TypedText(str(value), datatype or "")
            _add(found, read, in_list=in_list)
        elif value is not None:
            raise _HandedOver

    def _text(self, member: _Member, value: str, tags: "Tags") -> Any:
        coercion = member.coercion
        if coercion is None:
            if member.language is not None:
                tags.setdefault(member.name, {})[member.language] = None
            return value
        if coercion == ID:
            return self._reference(self._contexts.reference(member.terms, value))
        if coercion == "@vocab":
            return self._reference(self._contexts.type(member.terms, value))
        return literal_of(value, coercion)

    def _reference(self, key: str | None) -> Any:
        """Returns a reference to a node without statements here; an empty list if the node has no name either."""
        if key is None:
            return []
        if key.startswith("_:"):
            self._is_linked = True
            return Link(key)
        self._named.add(key)
        return Resource(key)

    def _object(
        self,
        member: _Member,
        element: dict[str, Any],
        found: "Statements",
        tags: "Tags",
        level: int,
        depth: int,
        *,
        in_list: bool,
    ) -> None:
        """Adds the value of an object: a node, a value, or the values of a set or list."""
        terms = member.terms
        if not terms.is_plain:
            terms = self._contexts.entered(terms, member.key, element)
        terms, types, shape = self._begun(element, terms, level)
        if shape.kind == NODE:
            left = self._left
            node, key, is_described, _ = self._node(element, terms, types, shape, level, depth + 1)
            if is_described:
                _add(found, node, in_list=in_list, key=None if key is None else (ID, key))
            else:
                self._left = left
                _add(found, self._reference(key), in_list=in_list)
        elif shape.index is not None and type(element[shape.index]) is not str:
            raise _HandedOver
        elif shape.kind == VALUE:
            _add(found, self._value(member, element, terms, types, shape, tags), in_list=in_list)
        elif shape.kind == GRAPH or terms is not member.terms or element[shape.content or ""] is None:
            raise _HandedOver
        elif shape.kind == LIST:
            listed: Statements = {}
            self._values(member, element[shape.content or ""], listed, tags, level + 1, depth, in_list=True)
            _add_list(found, listed.values())
        else:
            self._values(member, element[shape.content or ""], found, tags, level + 1, depth, in_list=in_list)

    def _value(
        self, member: _Member, element: dict[str, Any], terms: _Terms, types: _Terms, shape: _Shape, tags: "Tags"
    ) -> Any:
        """Returns the value of a value object. Raises `_HandedOver` if it is invalid, null or a JSON literal."""
        value = element[shape.value or ""]
        if type(value) not in DIRECT:
            raise _HandedOver
        if shape.direction is not None and element[shape.direction] not in ("ltr", "rtl"):
            raise _HandedOver
        if shape.type is not None:
            given = element[shape.type]
            datatype = self._contexts.type(types, given) if type(given) is str else None
            if datatype is None or datatype.startswith("_:") or not ABSOLUTE.match(datatype) or types is not terms:
                raise _HandedOver
            if type(value) is str:
                return literal_of(value, datatype)
            is_number = type(value) is bool or datatype in REALS or datatype in INTEGERS
            return value if is_number else TypedText(str(value), datatype)
        tag = None if shape.tag is None else element[shape.tag]
        if tag is not None:
            if type(tag) is not str or type(value) is not str:
                raise _HandedOver
            tags.setdefault(member.name, {})[tag.lower()] = None
        return value

    def _language_map(
        self, member: _Member, value: dict[str, Any], found: "Statements", tags: "Tags", level: int
    ) -> None:
        self._enter(value, level)
        if "@list" in member.container or not _has_names(value):
            raise _HandedOver
        for tag, texts in sorted(value.items()):
            is_tagged = self._contexts.name(member.terms, tag) != "@none"
            for each in texts if type(texts) is list else (texts,):
                if each is None:
                    continue
                if type(each) is not str:
                    raise _HandedOver
                if is_tagged:
                    tags.setdefault(member.name, {})[tag.lower()] = None
                _add(found, each)

    def _json(self, value: Any, found: "Statements") -> None:
        """Adds a JSON literal unchanged. Raises `_HandedOver` if it is nested too deeply or holds a value that is not
        JSON."""
        stack = [(value, 0)]
        while stack:
            each, level = stack.pop()
            if type(each) is dict or type(each) is list:
                self._enter(each, level)
                stack.extend((inner, level + 1) for inner in (each.values() if type(each) is dict else each))
            elif type(each) not in SCALARS:
                raise _HandedOver
        if type(value) is list:
            _add_list(found, _flat(value))
        else:
            _add(found, value, key=repr(value) if type(value) is dict else None)


class _Unfolding:
    """Replaces references by the nodes that they name, as `reader.unfolded` does."""

    def __init__(
        self, limits: EventLimits, described: Mapping[str, Node], labels: Mapping[int, str], roots: Mapping[str, Node]
    ) -> None:
        self._limits = limits
        self._described = described
        self._labels = labels
        self._roots = roots
        self._left = 0

    def root(self, key: str, node: Node) -> Node:
        """Returns the tree of a root. Raises `InvalidEvent` beyond the limits."""
        self._left = self._limits.values
        return self._node(node, key, ())

    def _node(self, node: Node, key: str, path: tuple[str, ...]) -> Node:
        if len(path) > self._limits.depth:
            raise self._limits.too_deep()
        path = (*path, key)
        unfolded = Node(None, node.value)
        self._count(len(node.value.types) if node.value is not None else 0)
        for name, values in node.items():
            if name in (ID, TYPE):
                unfolded[name] = values
                self._count(1)
                continue
            listed = values if type(values) is list else [values]
            if name.endswith(f">.{LANGUAGE}"):
                unfolded[name] = values
                self._count(len(listed))
                continue
            found = [inner for each in listed for inner in self._values(each, path)]
            self._count(len(found) + 1)
            if found:
                unfolded[name] = found[0] if len(found) == 1 else found
        return unfolded

    def _values(self, value: Any, path: tuple[str, ...]) -> tuple[Any, ...]:
        if type(value) is Node:
            iri = None if value.value is None else value.value.iri
            key = iri if iri is not None else self._labels.get(id(value), "_:-")
            if key in path and key != "_:-":
                return () if value.value is None else (value.value,)
            return (self._node(value, key, path),)
        if type(value) is not Resource and type(value) is not Link:
            return (value,)
        key = value.key if isinstance(value, Link) else value.iri or ""
        described = self._described.get(key)
        if described is None or key in path:
            if described is not None:
                return () if described.value is None else (described.value,)
            return () if type(value) is Link else (value,)
        if key in self._roots:
            return () if type(value) is Link else (value,)
        return (self._node(described, key, path),)

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise self._limits.too_many_values()


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────

Statements = dict[Any, Any]
"""The values of one property, by a key that is equal for equal statements. A list value has the members of a JSON-LD
list."""
Tags = dict[str, dict[str, None]]
"""Name of a member → the language tags of its texts."""


def _add(found: Statements, value: Any, *, in_list: bool = False, key: Any = None) -> None:
    """Adds a value, unless it is already there. Members of lists may repeat."""
    if in_list or type(value) is list or (key is None and type(value) is Node):
        found[len(found), None] = value
        return
    if key is None:
        if type(value) is Resource:
            key = ID, value.iri
        elif type(value) is Link:
            key = ID, value.key
        elif type(value) is TypedText:
            key = value
        else:
            key = type(value) is bool, isinstance(value, str), value
    found.setdefault(key, value)


def _add_list(found: Statements, members: Iterable[Any]) -> None:
    """Adds a list as one statement. Its members may be lists, which are flattened."""
    _add(found, [inner for each in members for inner in (each if type(each) is list else (each,))])


def _put(node: Node, name: str, found: Statements) -> int:
    """Sets the values of a property as a member of the node. Returns the number of values, plus one for the
    property."""
    values: list[Any] = []
    for value in found.values():
        if type(value) is list:
            values.extend(value)
        else:
            values.append(value)
    if values:
        node[name] = values[0] if len(values) == 1 else values
    return 1 + len(values)


def _flat(values: list[Any]) -> list[Any]:
    """Returns the members of nested arrays."""
    return [inner for each in values for inner in (_flat(each) if type(each) is list else (each,))]


def _has_names(map: Mapping[Any, Any]) -> bool:
    return all(type(each) is str for each in map)
