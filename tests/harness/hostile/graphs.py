"""Well-formed graphs whose shape costs: chains, circles, and crowds around one node."""

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import MILLION, OWL, RDF, SKOS, TURTLE, Document, hostile, many, plain, rdfs


@hostile
def chain_of_rest(canary: Canary) -> Document:
    cells = "".join(
        f"_:l{number} <{RDF}first> <http://e/{number}> .\n_:l{number} <{RDF}rest> _:l{number + 1} .\n"
        for number in range(many(500_000))
    )
    return plain(f"<http://e/A> <{OWL}intersectionOf> _:l0 .\n{cells}", "n-triples")


@hostile
def chain_of_union_members(canary: Canary) -> Document:
    return plain(
        TURTLE + f":A owl:unionOf ( {' '.join(f':C{number}' for number in range(many(100_000)))} ) .", "turtle"
    )


@hostile
def chain_of_intersections(canary: Canary) -> Document:
    nested = "".join(
        f"_:b{number} <{OWL}intersectionOf> _:l{number} .\n"
        f"_:l{number} <{RDF}first> _:b{number + 1} .\n_:l{number} <{RDF}rest> <{RDF}nil> .\n"
        for number in range(many(333_000))
    )
    return plain(
        f"<http://e/A> {rdfs('subClassOf')} _:b0 .\n{nested}_:b{many(333_000)} {rdfs('subClassOf')} <http://e/B> .",
        "nt",
    )


@hostile
def chain_of_equivalent_blank_nodes(canary: Canary) -> Document:
    chain = "".join(f"_:b{number} <{OWL}equivalentClass> _:b{number + 1} .\n" for number in range(many(100_000)))
    return plain(f"<http://e/A> {rdfs('subClassOf')} _:b0 .\n{chain}", "n-triples")


@hostile
def chain_of_blank_superclasses(canary: Canary) -> Document:
    chain = "".join(f"_:b{number} {rdfs('subClassOf')} _:b{number + 1} .\n" for number in range(many(MILLION)))
    return plain(f"<http://e/A> {rdfs('subClassOf')} _:b0 .\n{chain}", "n-triples")


@hostile
def chain_of_superclasses(canary: Canary) -> Document:
    chain = "".join(
        f"<http://e/{number}> {rdfs('subClassOf')} <http://e/{number + 1}> .\n" for number in range(many(100_000))
    )
    return plain(chain, "n-triples")


@hostile
def chain_of_properties(canary: Canary) -> Document:
    chain = "".join(
        f"<http://e/{number}> {rdfs('subPropertyOf')} <http://e/{number + 1}> .\n" for number in range(many(100_000))
    )
    return plain(chain, "n-triples")


@hostile
def chain_of_replacements(canary: Canary) -> Document:
    replaced = "<http://purl.org/dc/terms/isReplacedBy>"
    chain = "".join(f"<http://e/{number}> {replaced} <http://e/{number + 1}> .\n" for number in range(many(100_000)))
    return plain(chain, "n-triples")


@hostile
def circle_of_broader(canary: Canary) -> Document:
    circle = "".join(
        f"<http://e/{number}> <{SKOS}broader> <http://e/{(number + 1) % many(100_000)}> .\n"
        for number in range(many(100_000))
    )
    return plain(circle, "n-triples")


@hostile
def circle_of_rest_and_of_expressions(canary: Canary) -> Document:
    return plain(
        TURTLE + "_:a rdf:first :X ; rdf:rest _:b . _:b rdf:first _:c ; rdf:rest _:a . "
        "_:c owl:intersectionOf _:a ; owl:equivalentClass _:c ; rdfs:subClassOf _:c . :A rdfs:subClassOf _:c .",
        "turtle",
    )


@hostile
def crowd_of_members_of_one_list(canary: Canary) -> Document:
    heads = "".join(f"<http://e/{number}> <{OWL}intersectionOf> _:l0 .\n" for number in range(2_000))
    cells = "".join(
        f"_:l{number} <{RDF}first> <http://e/c{number}> .\n_:l{number} <{RDF}rest> _:l{number + 1} .\n"
        for number in range(20_000)
    )
    return plain(heads + cells, "n-triples")


@hostile
def crowd_of_tails_of_one_list(canary: Canary) -> Document:
    heads = "".join(f"<http://e/{number}> <{OWL}intersectionOf> _:l{number} .\n" for number in range(20_000))
    cells = "".join(
        f"_:l{number} <{RDF}first> <http://e/c{number}> .\n_:l{number} <{RDF}rest> _:l{number + 1} .\n"
        for number in range(20_000)
    )
    return plain(heads + cells, "n-triples")


@hostile
def crowd_of_expressions_upon_expressions(canary: Canary) -> Document:
    def pair(number: int) -> str:
        return f"_:b{number} owl:unionOf ( _:b{number + 1} _:b{number + 1} ) ; rdfs:subClassOf _:b{number + 1} ."

    return plain(TURTLE + ":A rdfs:subClassOf _:b0 ." + "".join(pair(number) for number in range(3_000)), "turtle")


@hostile
def crowd_of_same(canary: Canary) -> Document:
    same = "".join(f"<http://e/{number}> <{OWL}sameAs> <http://e/{number + 1}> .\n" for number in range(many(100_000)))
    return plain(same, "n-triples")
