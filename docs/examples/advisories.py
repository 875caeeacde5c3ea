"""Security advisories by class of weakness: who asks for injections is told of every kind of them.

    python docs/examples/advisories.py

The hierarchy is a small one in the manner of CWE; the advisories are invented.
"""

from pictures import bars, folder

from kindcast import Matcher, Vocabulary

WEAKNESSES = """
@prefix : <https://weakness.example/ns#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:Injection rdfs:label "Injection" ; rdfs:subClassOf :Weakness .
:CrossSiteScripting rdfs:label "Cross-site scripting" ; skos:altLabel "CWE-79", "XSS" ; rdfs:subClassOf :Injection .
:SqlInjection rdfs:label "SQL injection" ; skos:altLabel "CWE-89" ; rdfs:subClassOf :Injection .
:CommandInjection rdfs:label "Command injection" ; skos:altLabel "CWE-78" ; rdfs:subClassOf :Injection .
:MemorySafety rdfs:label "Memory safety" ; rdfs:subClassOf :Weakness .
:UseAfterFree rdfs:label "Use after free" ; skos:altLabel "CWE-416" ; rdfs:subClassOf :MemorySafety .
:OutOfBoundsWrite rdfs:label "Out-of-bounds write" ; skos:altLabel "CWE-787" ; rdfs:subClassOf :MemorySafety .
"""
ADVISORIES = [
    {"id": "A-1", "weakness": "CWE-79", "severity": 6.1, "package": "forms", "fixed": "2.4.50"},
    {"id": "A-2", "weakness": "SQL injection", "severity": 9.8, "package": "orders", "fixed": "1.10.0"},
    {"id": "A-3", "weakness": "CWE-416", "severity": 8.8, "package": "codec", "fixed": "0.9.2"},
    {"id": "A-4", "weakness": ["CWE-78", "CWE-787"], "severity": 7.5, "package": "shell", "fixed": "2.4.9"},
    {"id": "A-5", "weakness": "XSS", "severity": 4.3, "package": "wiki", "fixed": "12.0"},
]
ASKED = {
    "web team": "weakness isa Injection",
    "on call": "weakness isa Weakness and severity >= 9",
    "C developers": 'weakness isa "Memory safety"',
    "we run 2.4.9": 'fixed > "2.4.9" and fixed < "3.0"',
}


def main() -> None:
    """Prints who is told of which advisory."""
    vocabulary = Vocabulary.from_bytes(WEAKNESSES.encode(), format="turtle", attributes={"fixed": {"kind": "version"}})
    matcher = Matcher(vocabulary)
    matcher.add_many(list(ASKED.items()))
    counts = dict.fromkeys(ASKED, 0)
    for advisory, matches in zip(ADVISORIES, matcher.match_batch(ADVISORIES), strict=True):
        names = [match.subscription for match in matches]
        for name in names:
            counts[name] += 1
        told = ", ".join(sorted(names)) or "nobody"
        print(f"{advisory['id']} {advisory['weakness']}, fixed in {advisory['fixed']}: {told}")
    bars(folder() / "advisories.svg", "Advisories that each subscriber gets", counts)


if __name__ == "__main__":
    main()
