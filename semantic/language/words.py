"""Expressions in plain words: sentences for people who do not know the subscription language.

The tree of `kindcast.semantic.language.tree` is read, with a function that gives the label of a concept.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["plain_words"]

_WORDS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "every": "every event",
        "all": " and ",
        "any": " or ",
        "not": "it is not so that {}",
        "isa": "{0} is a kind of {1}",
        "is": "{0} is exactly {1}",
        "below": "{0} is a narrower kind than {1}",
        "relation": "{0} is related by {2} to {1}",
        "=": "{0} is {1}",
        "!=": "{0} is something other than {1}",
        "<": "{0} is less than {1}",
        "<=": "{0} is at most {1}",
        ">": "{0} is more than {1}",
        ">=": "{0} is at least {1}",
        "in": "{0} is one of {1}",
        "between": "{0} is between {1} and {2}",
        "exists": "{0} is given",
        "missing": "{0} is not given",
        "startswith": "{0} begins with {1}",
        "endswith": "{0} ends with {1}",
        "contains": "{0} contains {1}",
        "matches": "{0} fits the pattern {1}",
        "some": "at least one element of {0} has: {1}",
        "every_of": "each element of {0} has: {1}",
        "op": "the operator {0} says yes to {1}",
        "or": " or ",
        "type": "the type of the event",
    },
    "de": {
        "every": "jedes Ereignis",
        "all": " und ",
        "any": " oder ",
        "not": "es gilt nicht, dass {}",
        "isa": "{0} ist eine Art von {1}",
        "is": "{0} ist genau {1}",
        "below": "{0} ist eine engere Art als {1}",
        "relation": "{0} steht in der Beziehung {2} zu {1}",
        "=": "{0} ist {1}",
        "!=": "{0} ist etwas anderes als {1}",
        "<": "{0} ist kleiner als {1}",
        "<=": "{0} ist höchstens {1}",
        ">": "{0} ist größer als {1}",
        ">=": "{0} ist mindestens {1}",
        "in": "{0} ist eines von {1}",
        "between": "{0} liegt zwischen {1} und {2}",
        "exists": "{0} ist angegeben",
        "missing": "{0} ist nicht angegeben",
        "startswith": "{0} beginnt mit {1}",
        "endswith": "{0} endet mit {1}",
        "contains": "{0} enthält {1}",
        "matches": "{0} passt zum Muster {1}",
        "some": "mindestens ein Element von {0} hat: {1}",
        "every_of": "jedes Element von {0} hat: {1}",
        "op": "der Operator {0} bejaht {1}",
        "or": " oder ",
        "type": "der Typ des Ereignisses",
    },
    "zh": {
        "every": "所有事件",
        "all": ",并且",
        "any": ",或者",
        "not": "不满足:{}",
        "isa": "{0} 是一种 {1}",
        "is": "{0} 正是 {1}",
        "below": "{0} 是比 {1} 更窄的一种",
        "relation": "{0} 与 {1} 有关系 {2}",
        "=": "{0} 等于 {1}",
        "!=": "{0} 不是 {1}",
        "<": "{0} 小于 {1}",
        "<=": "{0} 不超过 {1}",
        ">": "{0} 大于 {1}",
        ">=": "{0} 至少为 {1}",
        "in": "{0} 是以下之一:{1}",
        "between": "{0} 介于 {1} 与 {2} 之间",
        "exists": "给出了 {0}",
        "missing": "没有给出 {0}",
        "startswith": "{0} 以 {1} 开头",
        "endswith": "{0} 以 {1} 结尾",
        "contains": "{0} 包含 {1}",
        "matches": "{0} 符合模式 {1}",
        "some": "{0} 中至少有一个元素:{1}",
        "every_of": "{0} 中的每个元素:{1}",
        "op": "运算 {0} 对 {1} 给出肯定",
        "or": " 或 ",
        "type": "事件类型",
    },
}


_BARE: Final = ("attribute", "instant", "term")
"""Members that hold a text which is shown as it is; others are functions of an attribute, such as `count`."""


def plain_words(tree: Mapping[str, Any], label: Callable[[str], str], language: str = "en") -> str:
    """The meaning of a tree as one sentence in English, German or Chinese (English for other languages). `label` gives
    the name of a concept by its IRI. Linear in the tree.

    >>> plain_words({"all": [{"isa": ["target", "Computer"]}, {"<=": ["price", 400]}]}, str)
    'target is a kind of Computer and price is at most 400'
    """
    return _Teller(_WORDS.get(language.partition("-")[0].lower(), _WORDS["en"]), label).told(tree)


class _Teller:
    def __init__(self, words: Mapping[str, str], label: Callable[[str], str]) -> None:
        self._words = words
        self._label = label

    def told(self, node: Mapping[str, Any], within: str = "") -> str:
        key, body = next(iter(node.items()))
        match key:
            case "all" | "any":
                if not body:
                    return self._words["every"] if key == "all" else self._words["not"].format(self._words["every"])
                text = self._words[key].join(self.told(each, key) for each in body)
                return f"({text})" if within not in ("", key) and len(body) > 1 else text
            case "not":
                return self._words["not"].format(self.told(body, key))
            case "some":
                return self._words["some"].format(self._name(body[0]), self.told(body[1], key))
            case "every":
                name, item = body if isinstance(body, list) else ("", body)
                return self._words["every_of"].format(self._name(name), self.told(item, key)).replace("  ", " ")
            case "isa" | "is" | "below":
                return self._words[key].format(self._name(body[0]), self._terms(body[1]))
            case "relation":
                relation = body[1] if isinstance(body[1], str) else self._term(body[1])
                return self._words[key].format(self._name(body[0]), self._terms(body[2]), _short(relation))
            case "between":
                low, high = body[1]
                return self._words[key].format(self._name(body[0]), self._value(low), self._value(high))
            case "in":
                values = body[1] if isinstance(body[1], list) else [body[1]]
                return self._words[key].format(self._name(body[0]), ", ".join(map(self._value, values)))
            case "exists" | "missing":
                return self._words[key].format(self._name(body))
            case "op":
                return self._words[key].format(body[0], ", ".join(map(self._value, body[1:])))
            case _:
                return self._words[key].format(self._name(body[0]), self._value(body[1]))

    def _name(self, name: Any) -> str:
        if isinstance(name, Mapping):
            return self._value(name)
        if name == "ce.type":
            return self._words["type"]
        return str(name)

    def _terms(self, terms: Any) -> str:
        return self._words["or"].join(map(self._term, terms)) if isinstance(terms, list) else self._term(terms)

    def _term(self, term: Any) -> str:
        return self._label(term["iri"]) if isinstance(term, Mapping) and "iri" in term else str(term)

    def _value(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Mapping):
            if "iri" in value:
                return self._label(value["iri"])
            if "value" in value:
                return " ".join(str(each) for each in (value["value"], value.get("unit", "")) if each != "")
            name, part = next(iter(value.items()))
            if isinstance(part, list):  # a sum
                return f" {name} ".join(map(self._value, part))
            return self._label(part) if name == "instance" else str(part) if name in _BARE else f"{name}({part})"
        return str(value)


def _short(iri: str) -> str:
    """The end of an IRI."""
    return iri.rstrip("/#").rpartition("/")[2].rpartition("#")[2]
