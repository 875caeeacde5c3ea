"""Documents made to hurt cost little, open nothing and never crash the process. Each case is refused or harmless."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Limits, extraction, read

RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:owl="http://www.w3.org/2002/07/owl#"'
    ' xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:e="http://e/">'
)
SUB_CLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
OWL = "http://www.w3.org/2002/07/owl#"
RDF_NS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def with_dtd(declarations: str, body: str = "") -> bytes:
    return f'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF {declarations}>\n{RDF}{body}</rdf:RDF>'.encode()


def labelled(text: str) -> str:
    return f'<owl:Class rdf:about="http://e/a"><rdfs:label>{text}</rdfs:label></owl:Class>'


# ── entities ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("dtd", "iri"),
    [
        ('[<!ENTITY e "http://e/?a=1&amp;b=2#">]', "http://e/?a=1&b=2#A"),
        ('[<!ENTITY e "http://e/?a=1&#38;#38;b=2#">]', "http://e/?a=1&b=2#A"),
        ('[<!ENTITY b "http://e/"><!ENTITY e "&b;x#">]', "http://e/x#A"),
        ('[<!ENTITY e "&b;x#"><!ENTITY b "http://e/">]', "http://e/x#A"),
        ("[<!ENTITY e 'http://e/'>]", "http://e/A"),
        ('[<!-- <!ENTITY e "x"> ]> --><!ENTITY e "http://e/">\n<!ELEMENT x ANY>]', "http://e/A"),
        ('[<!ENTITY e "http://e/"><!ENTITY e "http://other/">]', "http://e/A"),
        ('[<!ENTITY e "http://e/"><!ENTITY odd "&#38;#xD800;&#38;#x110000;&odd;&nowhere;">]', "http://e/A"),
    ],
)
def test_xml_with_entities_as_xml_has_them_is_read(dtd: str, iri: str) -> None:
    """Addresses with `&`, of several entities, in either kind of quotes; the first declaration of a name counts."""
    ontology = read(with_dtd(dtd, '<owl:Class rdf:about="&e;A"/>'))
    assert [each.iri for each in ontology.concepts] == [iri]


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("one<!-- c -->two", "onetwo"),
        ("<!-- <c> -->one <!-- c -->two<!-- c -->", "one two"),
        ("<![CDATA[a < b & c]]>", "a < b & c"),
        ("x <![CDATA[a < b]]> y<![CDATA[]]><![CDATA[<!-- no -->]]>", "x a < b y<!-- no -->"),
        ("x<?pi > ?>y", "xy"),
        ("Größe <!-- ü -->é<![CDATA[ö]]>", "Größe éö"),
        ("&r; &amp; &lt;<!-- &r; -->", "R & D &lt; & <"),
    ],
)
def test_xml_text_in_pieces_is_one_text(written: str, label: str) -> None:
    """Comments, processing instructions and CDATA sections in a label; what stands elsewhere stays where it is."""
    data = with_dtd('[<!ENTITY r "R &amp; D &#38;#38;lt;">]', "<!-- a --> " + labelled(written) + " <!-- b -->")
    [record] = [each for each in read(data).concepts if each.preferred]
    assert record.preferred == ((label, None),)


def test_error_after_a_doctype_has_its_line() -> None:
    """The DOCTYPE that is written again has as many lines."""
    data = with_dtd('[\n<!-- x -->\n<!ENTITY e\n "http://e/">\n]', '\n<owl:Class rdf:ID="a b"/>')
    with pytest.raises(OntologyError) as caught:
        read(data)
    assert caught.value.line == data[: data.index(b"rdf:ID")].count(b"\n") + 1


def test_xml_with_namespace_entities_is_accepted() -> None:
    """What Protégé and the OWL API write: an entity per namespace, used in attributes."""
    data = with_dtd(
        '[ <!ENTITY owl "http://www.w3.org/2002/07/owl#" > <!ENTITY e "http://e/" > <!ENTITY amp "&#38;#38;"> ]',
        '<rdf:Description rdf:about="&e;a"><rdf:type rdf:resource="&owl;Class"/>'
        "<rdfs:label>A &amp; &#66;</rdfs:label></rdf:Description>",
    )
    record = read(data).concepts[0]
    assert (record.iri, record.kind, record.preferred) == ("http://e/a", "class", (("A & B", None),))


@pytest.mark.parametrize(
    ("declarations", "word"),
    [
        ('[<!ENTITY a "' + "x" * 600 + '"><!ENTITY b "&a;&a;">]', "1,200 characters"),
        ('[<!ENTITY a "' + "x" * 600 + '"><!ENTITY b "&#38;a;&#38;a;">]', "1,200 characters"),
        (
            "[" + "".join(f'<!ENTITY e{n} "&e{n + 1};">' for n in range(40)) + '<!ENTITY e40 "">]',
            "more than 16 levels deep",
        ),
        ('[<!ENTITY a "<owl:Class/>">]', "contains markup"),
        ('[<!ENTITY a "&#60;owl:Class/>">]', "contains markup"),
        ('[<!ENTITY a SYSTEM "file:///etc/passwd">]', "external entity"),
        ('[<!ENTITY a PUBLIC "x" "http://127.0.0.1:9/">]', "external entity"),
        ('[<!ENTITY % p "x">]', "parameter entity"),
        ('[<!ENTITY % p SYSTEM "http://127.0.0.1:9/x.dtd"> %p;]', "parameter entity"),
        ('SYSTEM "http://127.0.0.1:9/x.dtd"', "external DTD"),
        ('PUBLIC "-//x//" "x.dtd" [<!ENTITY a "b">]', "external DTD"),
        ('[<!NOTATION n SYSTEM "x"><!ENTITY a SYSTEM "x.gif" NDATA n>]', "entity"),
        ('[<!ENTITY a "' + "x" * 1025 + '">]', "1,025 characters"),
        ("[" + "".join(f'<!ENTITY e{n} "x">' for n in range(257)) + "]", "more than 256"),
        ('[<!ATTLIST rdfs:label e:p CDATA "x">]', "default for attribute"),
    ],
)
def test_xml_with_harmful_declaration_is_refused_with_its_line(declarations: str, word: str) -> None:
    """No entity may be fetched, long with all that it is made of, deep or one of many, or hold elements; the DTD is in
    the document."""
    with pytest.raises(OntologyError, match=word) as caught:
        read(with_dtd(declarations, labelled("x")))
    assert caught.value.line is not None


def test_xml_of_flat_expansion_is_refused_by_run_and_by_total() -> None:
    """An entity of a thousand letters used ten thousand times stays within no bound, in texts or in attributes."""
    entity = f'[<!ENTITY a "{"x" * 1000}">]'
    run = with_dtd(entity, labelled("&a;" * 10_000))
    pieces = with_dtd(entity, "".join(labelled("&a;" * 10) for _ in range(1_000)))
    attributes = with_dtd(entity, f'<owl:Class rdf:about="http://e/{"&a;" * 10_000}"/>')
    for data in (run, pieces, attributes):
        with pytest.raises(OntologyError, match=r"characters|amplification"):
            read(data)


def test_xml_of_many_small_texts_counts_the_total() -> None:
    """Below the limit of each text and of each entity, the sum is still bounded by the size of the document."""
    data = with_dtd(f'[<!ENTITY a "{"x" * 100}">]', "".join(labelled("&a;") for _ in range(50)))
    assert read(data).triples == 2
    with pytest.raises(OntologyError, match="expand"):
        read(data, limits=Limits(expansion=0, entity_characters=4_000))


def test_xml_text_of_many_pieces_is_no_trouble() -> None:
    """A long text with a reference in every second place: quadratic in some parsers."""
    data = f"{RDF}{labelled('&amp;x' * 100_000)}</rdf:RDF>".encode()
    assert read(data, limits=Limits(label=1 << 20)).concepts[0].preferred == (("&x" * 100_000, None),)


# ── depth and length ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("rdf-xml", RDF + "<rdf:Description><e:p>" * 20_000 + "</e:p></rdf:Description>" * 20_000 + "</rdf:RDF>"),
        ("json-ld", '{"http://e/p":' * 20_000 + "1" + "}" * 20_000),
        ("json-ld", '{"http://e/p":' + "[" * 20_000 + "]" * 20_000 + "}"),
        ("turtle", "<http://e/a> <http://e/p> " + "<<( <http://e/a> <http://e/p> " * 100_000 + "1" + " )>>" * 100_000),
        ("n-triples", "<http://e/a> <http://e/p> " + "<<( <http://e/a> <http://e/p> " * 100_000 + '"1"'),
        ("turtle", "<< " * 100_000),
    ],
    ids=["xml elements", "json objects", "json arrays", "turtle terms", "n-triples terms", "unclosed terms"],
)
def test_nesting_beyond_the_limit_is_refused(format: str, data: str) -> None:
    """Unbounded, these cost quadratic time, or overflow the stack and with it the process."""
    with pytest.raises(OntologyError, match="nested more than 256 deep"):
        read(data.encode(), format=format)


@pytest.mark.parametrize("shape", ["[ <http://e/p> {} ]", "( {} )"])
def test_nesting_of_turtle_blank_nodes_is_read(shape: str) -> None:
    """Twenty thousand of these make some parsers recurse to death; ours does not mind."""
    before, after = shape.split("{}")
    data = f"<http://e/a> <http://e/p> {before * 20_000} 1 {after * 20_000} ."
    assert read(data.encode(), format="turtle").triples > 20_000


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("turtle", f"@prefix p: <http://e/{'x' * 9_000}> .\np:a {SUB_CLASS} p:b ."),
        ("rdf-xml", RDF.replace("http://e/", "http://e/" + "x" * 9_000) + "</rdf:RDF>"),
        ("rdf-xml", RDF[:-1] + f' xml:base="http://e/{"x" * 9_000}"></rdf:RDF>'),
        ("json-ld", '{"@context": {"p": "http://e/' + "x" * 9_000 + '"}}'),
    ],
    ids=["turtle prefix", "xml namespace", "xml base", "json context"],
)
def test_short_names_for_long_iris_are_refused(format: str, data: str) -> None:
    """Three bytes must not stand for a megabyte, thousands of times."""
    with pytest.raises(OntologyError, match="4,096 characters"):
        read(data.encode(), format=format)


@pytest.mark.parametrize(
    "data",
    [
        '{"@context":['
        + ",".join(f'{{"a{n}":"http://e/{n}"}}' for n in range(10_000))
        + '],"@graph":['
        + ",".join('{"@context":{"b":"http://e/b"},"@id":"http://e/a"}' for _ in range(10_000))
        + "]}",
        '{"@context":{"x":{"@id":"http://e/x","\\u0040context":{'
        + ",".join(f'"a{n}":"http://e/{n}"' for n in range(10_000))
        + '}}},"@graph":['
        + ",".join('{"x":{"a1":1}}' for _ in range(10_000))
        + "]}",
    ],
    ids=["many contexts", "context of a term"],
)
def test_json_ld_contexts_that_multiply_are_refused(data: str) -> None:
    """Every context copies the terms in force: ten thousand of each would keep a core busy for long."""
    with pytest.raises(OntologyError, match="contexts are too many"):
        read(data.encode(), format="json-ld")


@pytest.mark.parametrize(
    ("format", "data", "word"),
    [
        (
            "json-ld",
            '{"@context":{' + ",".join(f'"k{n + 1}":"k{n}:x"' for n in range(30_000)) + "}}",
            "terms are nested more than 8",
        ),
        ("json-ld", '{"@context":[{"@context":{"a":{"@id":"b:x"},"b":"a:y"}}]}', "terms are nested more than 8"),
        ("json-ld", '{"@context":{"@base":"' + "x" * 257 + '/"}}', "relative @base"),
        ("json-ld", '{"@context":{"@vocab":"' + "x" * 257 + '/"}}', "relative @vocab"),
        ("turtle", "@base <x/> .\n" * 1_001, "relative bases"),
        ("turtle", "BASE <x/>\n" * 1_001, "relative bases"),
        ("rdf-xml", RDF[:-1] + f' xml:base="{"x" * 257}/"></rdf:RDF>', "xml:base"),
        (
            "rdf-xml",
            RDF[:-1] + " ".join(f' xmlns:p{n}="http://p/"' for n in range(1_001)) + "></rdf:RDF>",
            "namespaces",
        ),
        (
            "rdf-xml",
            RDF + "<rdf:Description " + " ".join(f'e:p{n}="x"' for n in range(1_001)) + "/></rdf:RDF>",
            "attributes",
        ),
    ],
    ids=[
        *("chain of terms", "circle of terms", "json base", "json vocab", "turtle base", "sparql base"),
        *("xml base", "xml namespaces", "xml attributes"),
    ],
)
def test_names_made_of_names_are_bounded(format: str, data: str, word: str) -> None:
    """Recursion, names that grow by each other, and lists that are compared item by item."""
    with pytest.raises(OntologyError, match=word):
        read(data.encode(), format=format)


def test_json_ld_context_of_ordinary_kind_is_read() -> None:
    """Prefixes of prefixes, keywords under other names, typed and scoped terms: nothing of it is an offence."""
    data = b"""{"@context": [{"schema": "http://schema.org/", "s": "schema:s/", "id": "@id", "type": "@type"},
        {"sub": {"@id": "http://www.w3.org/2000/01/rdf-schema#subClassOf", "@type": "@id"},
         "s:date": {"@id": "s:date", "@type": "schema:Date"}, "part": {"@reverse": "s:partOf"},
         "address": {"@id": "schema:address", "@context": {"street": "schema:street", "@base": "http://e/"}}}],
        "id": "s:A", "sub": "s:B", "s:date": "2024", "part": {"id": "s:C"}, "address": {"street": "x"}}"""
    assert read(data, format="json-ld").edges == (("http://schema.org/s/A", "http://schema.org/s/B"),)


def test_namespaces_declared_again_and_again_are_read() -> None:
    """Some tools repeat the prefix on every element: what counts is how many are in force at once."""
    body = "".join(f'<e:A xmlns:e="http://e/" rdf:about="http://e/{n}"/>' for n in range(3_000))
    assert read(f"{RDF}{body}</rdf:RDF>".encode()).triples == 3_000


def test_json_ld_with_one_large_context_is_read() -> None:
    """The usual shape of a large document is not mistaken for an attack."""
    terms = ",".join(f'"a{n}":{{"@id":"http://e/{n}","@type":"@id"}}' for n in range(2_000))
    nodes = ",".join(f'{{"@id":"http://e/{n}","a{n}":"http://e/0"}}' for n in range(2_000))
    assert read(f'{{"@context":{{{terms}}},"@graph":[{nodes}]}}'.encode()).triples == 2_000


def test_json_ld_key_with_a_broken_escape_is_left_to_the_parser() -> None:
    """The look ahead decodes keys that may be `@context`; what cannot be decoded is none."""
    with pytest.raises(OntologyError, match="line 1"):
        read(b'{"\\x@context": {}}', format="json-ld")


def test_json_ld_string_left_open_costs_linear_time() -> None:
    """A million escaped quotes and no end: the look ahead must not start again at each."""
    with pytest.raises(OntologyError):
        read(b'{"a":"' + b'\\"' * 1_000_000, format="json-ld")


# ── chains, circles, products ───────────────────────────────────────────────────────────────────────────────────────


def test_chain_of_blank_nodes_is_walked_without_recursion() -> None:
    """A class that is equivalent to the first of twenty thousand blank nodes in a row."""
    lines = [f"<http://e/a> <{OWL}equivalentClass> _:b0 ."]
    lines += [f"_:b{n} {SUB_CLASS} _:b{n + 1} ." for n in range(20_000)]
    lines += [f"_:b20000 {SUB_CLASS} <http://e/top> ."]
    assert read("\n".join(lines).encode()).edges == (("http://e/a", "http://e/top"),)


def test_list_that_bites_its_tail_ends() -> None:
    """An RDF list may run in a circle; its members count once."""
    data = f"""<http://e/a> <{OWL}intersectionOf> _:l1 .
    _:l1 <{RDF_NS}first> <http://e/b> ; <{RDF_NS}rest> _:l2 .
    _:l2 <{RDF_NS}first> <http://e/c> ; <{RDF_NS}rest> _:l1 ."""
    assert read(data.encode(), format="turtle").edges == (("http://e/a", "http://e/b"), ("http://e/a", "http://e/c"))


def test_class_expressions_that_multiply_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that share one conjunction: a small file, the product of pairs."""
    monkeypatch.setattr(extraction, "DERIVED", 30_000)  # two million take a second
    lines = [f"<http://e/a{n}> <{OWL}equivalentClass> _:x ." for n in range(200)]
    lines.append(f"_:x <{OWL}intersectionOf> _:l0 .")
    for n in range(200):
        lines.append(f"_:l{n} <{RDF_NS}first> <http://e/c{n}> .\n_:l{n} <{RDF_NS}rest> _:l{n + 1} .")
    with pytest.raises(OntologyError, match="class expressions"):
        read("\n".join(lines).encode(), format="n-triples")


# ── nothing is opened ───────────────────────────────────────────────────────────────────────────────────────────────

REMOTE_CONTEXTS = [
    '{"@context": "http://127.0.0.1:9/context", "@id": "http://e/a", "x": 1}',
    '{"@context": ["file:///etc/hostname"], "@id": "http://e/a", "x": 1}',
    '{"@context": "context.jsonld", "@id": "http://e/a", "x": 1}',
    '{"@context": {"@version": 1.1, "@import": "http://127.0.0.1:9/context"}, "@id": "http://e/a", "x": 1}',
    '{"@context": {"x": {"@id": "e:x", "@context": "http://127.0.0.1:9/c"}}, "@id": "http://e/a", "x": {"y": 1}}',
]


@pytest.mark.parametrize("data", REMOTE_CONTEXTS)
def test_json_ld_remote_context_is_refused_clearly(data: str) -> None:
    """By URL, by file, by relative name, by import, inside a term: never fetched, and the error says what to do."""
    with pytest.raises(OntologyError, match="never fetched: write the context into the document"):
        read(data.encode(), format="json-ld")


def test_imports_are_listed_and_not_followed() -> None:
    """Imports are part of what the document says, not of what is loaded."""
    data = f"<http://e/> a <{OWL}Ontology> ; <{OWL}imports> <http://127.0.0.1:9/x>, <file:///etc/passwd> ."
    ontology = read(data.encode(), format="turtle")
    assert ontology.imports == ("file:///etc/passwd", "http://127.0.0.1:9/x")
    assert ontology.declares == ("http://e/",)


def test_reading_opens_no_file_and_no_socket(tmp_path: Path) -> None:
    """A process of its own with an audit hook: no document makes it touch a file, socket or program."""
    documents = {
        "import.ttl": f"<http://e/> a <{OWL}Ontology> ; <{OWL}imports> <http://127.0.0.1:9/x>, <file:///etc/passwd> .",
        "base.ttl": "@base <file:///etc/> . <passwd> a <hosts> .",
        "external.owl": with_dtd('SYSTEM "http://127.0.0.1:9/x.dtd"').decode(),
        "entity.owl": with_dtd('[<!ENTITY a SYSTEM "file:///etc/passwd">]', labelled("&a;")).decode(),
        "schema.owl": f'<?xml-stylesheet href="http://127.0.0.1:9/x"?>{RDF}{labelled("x")}</rdf:RDF>',
        "plain.nt": f"<http://e/a> {SUB_CLASS} <http://e/b> .",
    }
    documents |= {f"context{n}.jsonld": data for n, data in enumerate(REMOTE_CONTEXTS)}
    for name, text in documents.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from kindcast.semantic.errors import OntologyError
        from kindcast.semantic.ontology import read
        documents = {path.name: path.read_bytes() for path in Path(sys.argv[1]).iterdir()}
        read(documents["plain.nt"])  # whatever is imported late is imported now
        touched = []
        watched = ("open", "socket.", "urllib.", "subprocess.", "os.", "ftplib.", "http.")
        sys.addaudithook(lambda event, args: touched.append(event) if event.startswith(watched) else None)
        read_well = 0
        for name, data in documents.items():
            try:
                read(data, name=name)
                read_well += 1
            except OntologyError:
                pass
        print(read_well, len(documents), touched)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split("\n")[0] == f"4 {len(documents)} []"
