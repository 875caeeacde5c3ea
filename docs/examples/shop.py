"""A shop in four languages: offers and subscriptions, each in the words of whoever wrote them.

    python docs/examples/shop.py

The shipped vocabulary knows English, German and Chinese. French is added by a table of synonyms.
"""

from pictures import bars, folder

from kindcast import Matcher, Vocabulary

FRENCH = {"ordinateur portable": "laptop", "imprimante": "printer", "canapé": "sofa"}
OFFERS = [
    {"target": "Ultrabook", "price": "390 USD"},
    {"target": "Klapprechner", "price": "450 EUR"},
    {"target": "笔记本电脑", "price": "350 USD"},
    {"target": "ordinateur portable", "price": "280 EUR", "condition": "neu"},
    {"target": "Multifunktionsdrucker", "price": "120 EUR"},
    {"target": "imprimante", "price": "90 EUR"},
    {"target": "Tower PC", "price": "99 USD", "condition": "used"},
    {"target": "Maus", "price": "9 USD"},
]
ASKED = {
    "Ann (English)": "target isa Computer and price < 400 USD",
    "Bernd (Deutsch)": "target isa Drucker and price <= 100 EUR",
    "王 (中文)": "target isa 计算机 and not condition isa Used",
    "Chloé (français)": 'target isa "ordinateur portable"',
}


def main() -> None:
    """Prints who gets which offer."""
    vocabulary = Vocabulary.from_files("shop.ttl", synonyms=FRENCH, rates={"EUR": {"USD": "1.08"}})
    matcher = Matcher(vocabulary)
    matcher.add_many(list(ASKED.items()))
    counts = dict.fromkeys(ASKED, 0)
    for offer, matches in zip(OFFERS, matcher.match_batch(OFFERS), strict=True):
        names = [match.subscription for match in matches]
        for name in names:
            counts[name] += 1
        print(f"{offer['target']}, {offer['price']}: {', '.join(sorted(names)) or 'nobody'}")
    bars(folder() / "shop.svg", "Offers that each subscriber gets", counts)


if __name__ == "__main__":
    main()
