"""The clock by which things end: a jump ahead is no time that has passed."""

from kindcast.server.clock import Clock, instant

DAYS = 86_400.0


class Machine:
    """A wall clock that anybody sets, and the seconds since the machine started."""

    def __init__(self) -> None:
        self.wall, self.running = 1_000_000_000.0, 500.0
        self.clock = Clock(lambda: self.wall, lambda: self.running)

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.running += seconds


def test_jump_ahead_is_not_believed_until_confirmed() -> None:
    """Time goes on at the machine's pace; set back, or confirmed, the clock counts again."""
    machine = Machine()
    machine.pass_by(100.0)
    before = machine.clock.now()
    machine.wall += 10 * DAYS
    assert machine.clock.now() == before
    machine.pass_by(5.0)
    assert machine.clock.now() == before + 5.0
    assert "864,000 s" in (machine.clock.trouble or "")
    machine.wall -= 10 * DAYS
    assert machine.clock.now() == machine.wall
    assert machine.clock.trouble is None
    machine.wall += 10 * DAYS
    machine.clock.restart()
    assert machine.clock.now() == machine.wall
    assert machine.clock.trouble is None


def test_sleep_and_small_steps_are_no_jump() -> None:
    """CLOCK_BOOTTIME counts a machine's sleep; corrections of seconds are everyday."""
    machine = Machine()
    machine.pass_by(30 * DAYS)
    for _ in range(5):
        machine.wall += 10.0
        assert machine.clock.now() == machine.wall
    machine.wall -= 3_600.0
    assert machine.clock.now() == machine.wall
    assert machine.clock.trouble is None


def test_jump_while_the_server_did_not_run_is_noticed_at_its_start() -> None:
    """By what was seen before, as long as the machine has run since."""
    machine = Machine()
    seen = machine.clock.offset
    machine.wall += 10 * DAYS
    machine.clock.restart(seen)
    assert machine.clock.trouble is not None
    machine.clock.restart(None)
    assert machine.clock.trouble is None


def test_clock_ahead_of_the_database_is_not_believed() -> None:
    """Time is the database's until one of the two is set, whatever was confirmed. A slow answer is no difference."""
    machine = Machine()
    clock = machine.clock
    machine.wall += 10 * DAYS
    clock.restart()
    clock.compare(machine.wall - 10 * DAYS, clock.running)
    assert clock.now() == machine.wall - 10 * DAYS
    assert "864,000 s ahead of the database" in (clock.trouble or "")
    clock.restart()
    assert clock.trouble is not None
    asked = clock.running
    machine.pass_by(100.0)
    clock.compare(machine.wall - 100.0, asked)
    assert (clock.now(), clock.trouble) == (machine.wall, None)
    clock.compare(machine.wall - DAYS, clock.running)
    machine.wall += 2 * DAYS
    assert clock.now() == machine.wall - 3 * DAYS
    clock.compare_no_more()
    assert clock.now() == machine.wall - 2 * DAYS


def test_clock_behind_the_database_is_not_believed() -> None:
    """Other servers would end at once what this one makes for an hour. A slow answer is no difference here either."""
    machine = Machine()
    clock = machine.clock
    clock.compare(machine.wall + 10 * DAYS, clock.running)
    assert clock.now() == machine.wall + 10 * DAYS
    assert "864,000 s behind the database" in (clock.trouble or "")
    clock.restart()
    assert clock.now() == machine.wall + 10 * DAYS
    machine.pass_by(5.0)
    machine.wall += 10 * DAYS
    assert (clock.now(), clock.trouble) == (machine.wall, None)
    asked = clock.running
    machine.pass_by(100.0)
    clock.compare(machine.wall, asked)
    assert (clock.now(), clock.trouble) == (machine.wall, None)


def test_jump_of_the_database_is_not_believed_until_confirmed() -> None:
    machine = Machine()
    clock = machine.clock
    clock.compare(machine.wall, clock.running)
    machine.pass_by(5.0)
    clock.compare(machine.wall + 10 * DAYS, clock.running)
    assert clock.now() == machine.wall
    assert "the clock of the database jumped ahead by 864,000 s" in (clock.trouble or "")
    clock.restart()
    assert clock.now() == machine.wall + 10 * DAYS


def test_times_after_the_year_9999_are_its_last_second() -> None:
    """Tokens of an identity provider may say so."""
    for at in (253_402_300_799.0, 253_402_300_799.9, 1_795_766_368_000.0, 1e300):
        assert instant(at) == "9999-12-31T23:59:59.000Z"
