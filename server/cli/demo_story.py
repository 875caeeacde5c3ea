"""The data of the demonstration: subscriptions and events after the CTPS paper (section 3, Figures 1-3)."""

from dataclasses import dataclass
from typing import Any

__all__ = ["CHEAPER", "JOHNS_OFFER", "OFFERS", "PAPER_WISH", "VOCABULARY", "WISHES", "Wish"]

VOCABULARY = "shop.ttl"


@dataclass(frozen=True, slots=True)
class Wish:
    """A subscription. `plain` is the nearest that a server without a vocabulary can be asked."""

    who: str
    text: str
    plain: str


PAPER_WISH = Wish("Anna", "target isa Computer and price <= 400 USD", 'target = "Computer" and price <= 400 USD')
WISHES = (
    PAPER_WISH,
    Wish(
        "Bruno",
        "Artikel isa Drucker and not Zustand isa Gebraucht",
        'Artikel = "Drucker" and not Zustand = "Gebraucht"',
    ),
    Wish(
        "陈",
        "产品 isa 存储设备 and size >= 500 GB",
        '产品 = "存储设备" and size >= 500 GB',
    ),
    Wish(
        "Dora",
        'target isa "Mobile device" and seller.contact exists',
        'target = "Mobile device" and seller.contact exists',
    ),
)

JOHNS_OFFER: dict[str, Any] = {
    "target": "Desktop PC",
    "manufacturer": "HP",
    "price": {"value": 450, "currency": "USD"},
    "hardDisk": {"size": "40 GB", "manufacturer": "IBM"},
    "seller": {"name": "John", "cellPhoneNumber": "123456789"},
}
"""The event of the paper's Figure 2: a computer, but not for at most 400."""

CHEAPER: dict[str, Any] = {**JOHNS_OFFER, "price": {"value": 350, "currency": "USD"}}

OFFERS: tuple[dict[str, Any], ...] = (
    {"target": "Laser printer", "condition": "new", "price": "189 USD"},
    {"target": "notebook", "price": "349 USD", "seller": {"name": "Ms Okafor", "email": "okafor@example.org"}},
    {"target": "Maus", "price": "12 USD"},
    {"target": "Computer", "price": "380 USD"},
    {"target": "Multifunktionsdrucker", "Zustand": "neu", "Preis": "249 USD"},
    {"target": "固态硬盘", "size": "1 TB", "price": "79 USD"},
    JOHNS_OFFER,
    {"target": "Convertible", "price": "399.50 USD"},
    {"target": "Tintenstrahldrucker", "condition": "refurbished", "price": "35 USD"},
    {"target": "hard disk drive", "size": {"value": 250, "unit": "GB"}, "price": "15 USD"},
    {"target": "手机", "price": "120 USD", "seller": {"name": "Li", "电话": "555-0199"}},
    {"target": "台式机", "price": "310 USD", "seller": {"name": "王"}},
    CHEAPER,
)
