"""A thesaurus and the records of a library: readers ask for a subject in their language, and get what is narrower.

    python docs/examples/library.py

The thesaurus (SKOS) and the records are small and were written for this example.
"""

from pictures import bars, folder

from kindcast import Matcher, Vocabulary

THESAURUS = """
@prefix : <https://library.example/subjects#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:science a skos:Concept ; skos:prefLabel "Science"@en, "Ciencia"@es .
:life a skos:Concept ; skos:broader :science ; skos:prefLabel "Biology"@en, "Biología"@es .
:botany a skos:Concept ; skos:broader :life ; skos:prefLabel "Botany"@en, "Botánica"@es ;
  skos:altLabel "Plant science"@en .
:mosses a skos:Concept ; skos:broader :botany ; skos:prefLabel "Mosses"@en, "Musgos"@es .
:zoology a skos:Concept ; skos:broader :life ; skos:prefLabel "Zoology"@en, "Zoología"@es .
:earth a skos:Concept ; skos:broader :science ; skos:prefLabel "Geology"@en, "Geología"@es .
"""
RECORDS = [
    {"title": "A walk among mosses", "subject": ["Musgos"], "year": 1998, "language": "es"},
    {"title": "Owls of the north", "subject": ["Zoology"], "year": 2021, "language": "en"},
    {"title": "Rock and root", "subject": ["Geology", "Plant science"], "year": 2015, "language": "en"},
    {"title": "Green carpets", "subject": ["Mosses"], "year": 2024, "language": "en"},
    {"title": "A cookbook", "subject": ["Cooking"], "year": 2020, "language": "en"},
]
ASKED = {
    "botany, new": "subject isa Botany and year >= 2010",
    "biología": "subject isa Biología",
    "only zoology": "every subject isa Zoology",
    "all of science": "subject isa Science",
}


def main() -> None:
    """Prints who is told of which record."""
    matcher = Matcher(Vocabulary.from_bytes(THESAURUS.encode(), format="turtle"))
    matcher.add_many(list(ASKED.items()))
    counts = dict.fromkeys(ASKED, 0)
    for record, matches in zip(RECORDS, matcher.match_batch(RECORDS), strict=True):
        names = [match.subscription for match in matches]
        for name in names:
            counts[name] += 1
        print(f"{record['title']} ({', '.join(record['subject'])}): {', '.join(sorted(names)) or 'nobody'}")
    bars(folder() / "library.svg", "Records that each reader gets", counts)


if __name__ == "__main__":
    main()
