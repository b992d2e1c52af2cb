"""The rounds of the demo: which writes happen when. lakejoin runs once after each round."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from pipelines.commands.demo.airline import Airline
from pipelines.commands.demo.movements import Movements
from pipelines.commands.demo.registry import EMBRAER_190, SISTER, UNREGISTERED, Registry

FRIDAY, SATURDAY = date(2013, 2, 8), date(2013, 2, 9)
"""The days of the blizzard that closed the airports of New York."""

FLEET_UPDATE = "fleet update: Embraer 190 seats 100, not 20"

TUESDAY = date(2013, 2, 12)
SEATS_AT_NOON = "a day of departures; at noon: 98 seats"
WEDNESDAY = date(2013, 2, 13)
THURSDAY = date(2013, 2, 14)
DELAYED = "carrier = 'DL' AND flight = 461"
"""A flight that arrives in the morning and is reported at night."""


@dataclass(frozen=True)
class Round:
    """Writes, each of which returns the number of rows that it changed, followed by one run of lakejoin."""

    when: str
    what: str
    writes: tuple[Callable[[], int], ...]


def blizzard(airline: Airline, on_sale: date) -> list[Round]:
    """Return the rounds of the blizzard. Saturday is one run for many writes, most of them to the same rows."""
    tomorrow = on_sale + timedelta(days=1)
    return [
        Round(
            "Fri 8 Feb 05:00",
            f"aircraft assigned, {tomorrow:%d %b} on sale",
            (lambda: airline.assign_aircraft(FRIDAY), lambda: airline.put_on_sale(tomorrow)),
        ),
        Round(
            "Fri 8 Feb 13:00",
            "first departures, then snow: cancellations",
            (lambda: airline.depart(FRIDAY, until=13), lambda: airline.cancel(FRIDAY)),
        ),
        Round(
            "Fri 8 Feb 24:00",
            "late departures, all arrivals",
            (lambda: airline.depart(FRIDAY, after=13), lambda: airline.land(FRIDAY)),
        ),
        Round(
            "Sat 9 Feb 24:00",
            f"a whole day at once, {tomorrow + timedelta(days=1):%d %b} on sale",
            (
                lambda: airline.assign_aircraft(SATURDAY),
                lambda: airline.cancel(SATURDAY),
                lambda: airline.depart(SATURDAY),
                lambda: airline.land(SATURDAY),
                lambda: airline.put_on_sale(tomorrow + timedelta(days=1)),
            ),
        ),
        Round("Sat 9 Feb 24:00", "no changes", ()),
    ]


def tuesday(departures: Movements, registry: Registry) -> list[Round]:
    """Return the round of a day of departures; the seats of a model are corrected again at noon."""
    return [
        Round(
            "Tue 12 Feb 24:00",
            SEATS_AT_NOON,
            (
                lambda: departures.move(TUESDAY, 0, 12),
                lambda: registry.correct_seats(EMBRAER_190, 98),
                lambda: departures.move(TUESDAY, 12, 24),
            ),
        )
    ]


def wednesday(departures: Movements, arrivals: Movements) -> list[Round]:
    """Return the round of a day of two streams; one arrival is reported hours late."""
    return [
        Round(
            "Wed 13 Feb 24:00",
            "a day of both, one arrival hours late",
            (
                lambda: arrivals.move(WEDNESDAY, which=f"NOT ({DELAYED})"),
                lambda: departures.move(WEDNESDAY),
                lambda: arrivals.move(WEDNESDAY, which=DELAYED),
            ),
        )
    ]


def thursday(departures: Movements) -> list[Round]:
    """Return the two rounds of a day of one stream; departures before noon are buffered for those after it."""
    return [
        Round("Thu 14 Feb 12:00", "departures before noon", (lambda: departures.move(THURSDAY, until=12),)),
        Round("Thu 14 Feb 24:00", "departures after noon", (lambda: departures.move(THURSDAY, after=12),)),
    ]


def aftermath(registry: Registry) -> list[Round]:
    """Return the rounds after the flights are over; many flights refer to each row that is written."""
    return [
        Round("Sun 10 Feb 09:00", "the weather of both days is added", (lambda: registry.observe(FRIDAY, SATURDAY),)),
        Round("Mon 11 Feb 09:00", FLEET_UPDATE, (lambda: registry.correct_seats(EMBRAER_190, 100),)),
        Round(
            "Mon 11 Feb 09:30",
            f"{len(UNREGISTERED)} missing planes are registered",
            (lambda: registry.register(*UNREGISTERED, like=SISTER),),
        ),
    ]
