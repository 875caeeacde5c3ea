"""Every golden case by the oracle and by the matcher with every engine; what the files say is the truth for both."""

import pytest

from kindcast import InvalidEvent, InvalidSubscription, Matcher, Vocabulary
from kindcast.index.registry import ENGINES
from kindcast.semantic.model import Event
from kindcast.semantic.ontology import read
from tests.golden.case_files import Case, Document, GoldenEvent, cases
from tests.oracle import World, matching
from tests.oracle.from_records import world_of

CASES = cases()


@pytest.fixture(params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    """Each case file in turn."""
    found: Case = request.param
    return found


def vocabulary_of(case: Case, document: Document) -> Vocabulary:
    return Vocabulary.from_bytes(document.data, format="turtle", relations=document.relations, **case.declarations)


def event_of(event: GoldenEvent) -> Event:
    return Event(event.data, event.context)


def test_golden_case_by_the_oracle(case: Case) -> None:
    """The oracle says what the file says, of the subscriptions as the product resolved them."""
    matcher = Matcher(vocabulary_of(case, case.ontology))
    expressions = {name: matcher.compile(text).expression for name, text in case.subscriptions.items()}

    def check(document: Document, events: list[GoldenEvent]) -> None:
        world: World = world_of(read(document.data, format="turtle", relations=document.relations), **case.declarations)
        for event in events:
            assert sorted(matching(expressions, event_of(event), world)) == event.expected, event

    check(case.ontology, case.events)
    if case.later is not None:
        check(*case.later)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_golden_case_by_the_matcher(case: Case, engine: str) -> None:
    """One by one and in a batch, also after the next version of the document."""
    matcher = Matcher(vocabulary_of(case, case.ontology), engine=engine)
    matcher.add_many(case.subscriptions.items())
    found = [sorted(match.subscription for match in matcher.match(event_of(event))) for event in case.events]
    assert found == [event.expected for event in case.events]
    batch = matcher.match_batch([event_of(event) for event in case.events])
    assert [sorted(match.subscription for match in matches) for matches in batch] == found
    if case.later is not None:
        document, events = case.later
        matcher = matcher.rebuilt(vocabulary_of(case, document))
        for event in events:
            assert sorted(match.subscription for match in matcher.match(event_of(event))) == event.expected, event
    matcher.check_invariants()


def test_golden_case_refuses_what_it_names(case: Case) -> None:
    """What must be refused is refused with the code of its problem."""
    matcher = Matcher(vocabulary_of(case, case.ontology))
    for text, code in case.refused.items():
        with pytest.raises(InvalidSubscription) as caught:
            matcher.add("refused", text)
        assert [problem.code for problem in caught.value.problems] == [code], text


def test_golden_case_refuses_events_that_do_not_fit_their_type(case: Case) -> None:
    """Every problem with its place and its code."""
    matcher = Matcher(vocabulary_of(case, case.ontology))
    for each in case.invalid:
        with pytest.raises(InvalidEvent) as caught:
            matcher.match(each["event"])
        assert {str(problem.at): problem.code for problem in caught.value.problems} == each["problems"], each


def test_golden_cases_have_no_idle_subscription() -> None:
    """Every subscription of a case is matched by some event and by some event not, unless its name says so."""
    idle = {
        (case.name, name)
        for case in CASES
        for name in case.subscriptions
        for events in [case.events + (case.later[1] if case.later else [])]
        if len({name in event.expected for event in events}) == 1
    }
    allowed = {("rule_16_clauses", "empty"), ("rule_16_clauses", "contradiction"), ("rule_01_flattening", "object")}
    assert idle - allowed == set()
