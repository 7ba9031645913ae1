"""How the slices of a card share the work: chosen from what they are and from what is asked. Pure: numbers in, a plan out.

    one      all on the fastest slice
    layers   what the program keeps lies where there is memory, and operations run where most of what they need is: the card has
             the memory of all slices together, and one of them computes at a time
    batch    what the program keeps is on every slice, and each computes a part of the batch in proportion to what it can do:
             gradients are summed, and the card has the speed of all slices together, less what that costs
"""

import dataclasses

SPLITS = ("auto", "one", "layers", "batch")
#: What `batch` must be faster by, as predicted, to be chosen unasked: predictions are not exact.
WORTHWHILE = 1.1


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice of the card."""

    memory_bytes: int
    #: FLOP per second.
    rate: float


@dataclasses.dataclass(frozen=True)
class Link:
    """What lies between the slices, measured."""

    #: Of a sum over all slices.
    bytes_per_second: float
    #: Of the smallest exchange.
    seconds: float


@dataclasses.dataclass(frozen=True)
class Work:
    """What a program has done in some time, as far as it matters here."""

    #: FLOP of what can be divided by rows of the batch, and of what each slice would do as a whole.
    divisible: float
    repeated: float
    #: What would be summed or brought elsewhere, and how often.
    exchanged_bytes: float
    exchanges: float
    #: Whether each slice has the memory for its part of that.
    fits: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """What was chosen, and what is expected of it."""

    split: str
    memory_bytes: int
    #: How many times as fast as the fastest slice alone; unknown before anything was computed.
    speed_up: float | None
    #: The most that it could be.
    ideal: float
    why: str
    refused: bool = False

    def __str__(self) -> str:
        expected = f"{self.speed_up:.2f} times" if self.speed_up is not None else f"at most {self.ideal:.2f} times"
        refused = "REFUSED " if self.refused else ""
        return f"{refused}plan {self.split}: {self.why}; expected {expected} the speed of the fastest slice, {self.memory_bytes >> 20} MiB"

    def describe(self, slices: list[Slice], link: Link, parts: list[float]) -> dict:
        """For whoever asks the card what it does."""
        return {
            "plan": self.split, "why": self.why, "expected_speed_up": self.speed_up, "ideal_speed_up": self.ideal,
            "slices": [
                {"memory_bytes": slice.memory_bytes, "tflops": slice.rate / 1e12, "part_of_rows": part}
                for slice, part in zip(slices, parts, strict=True)
            ],
            "link": dataclasses.asdict(link),
        }  # fmt: skip


def seconds_alone(slices: list[Slice], work: Work) -> float:
    """On the fastest slice."""
    return (work.divisible + work.repeated) / max(slice.rate for slice in slices)


def parts(slices: list[Slice]) -> list[float]:
    """Of the rows, for each slice, before it is known what it takes for them."""
    together = sum(slice.rate for slice in slices)
    return [slice.rate / together for slice in slices]


def seconds_by_batch(slices: list[Slice], link: Link, work: Work) -> float:
    """Divided so that all take the same, together with what each does as a whole; one that is too slow even for that is waited for."""
    rates = [slice.rate for slice in slices]
    even = (work.divisible + len(rates) * work.repeated) / sum(rates)
    computed = max(even, work.repeated / min(rates))
    return computed + work.exchanged_bytes / link.bytes_per_second + work.exchanges * link.seconds


def speed_up(slices: list[Slice], link: Link, work: Work) -> float:
    """Of `batch` over the fastest slice alone."""
    alone = seconds_alone(slices, work)
    return alone / seconds_by_batch(slices, link, work) if alone > 0 else 1.0


def choose(slices: list[Slice], link: Link, work: Work | None, asked: str = "auto", *, refuse_slower: bool = False) -> Plan:
    """The plan for these slices. What is asked for by name is done, and said what it costs, or refused where it costs more than it brings."""
    if asked not in SPLITS:
        raise ValueError(f"{asked!r} is no way to split a card; one of {', '.join(SPLITS)}")
    fastest = max(slice.rate for slice in slices)
    together = sum(slice.memory_bytes for slice in slices)
    ideal = sum(slice.rate for slice in slices) / fastest
    predicted = speed_up(slices, link, work) if work is not None else None
    if asked == "one":
        memory = max(slice.memory_bytes for slice in slices if slice.rate == fastest)
        return Plan("one", memory, 1.0, 1.0, "asked for")
    if asked == "layers":
        return Plan("layers", together, 1.0, 1.0, "asked for")
    if asked == "batch":
        slower = predicted is not None and predicted < 1
        why = "asked for, and SLOWER than the fastest slice alone" if slower else "asked for"
        return Plan("batch", together, predicted, ideal, why, refused=slower and refuse_slower)
    if work is None:
        return Plan("layers", together, 1.0, 1.0, "the fastest slice computes until it is known what the program does")
    if not work.fits:
        return Plan("layers", together, 1.0, 1.0, "what the program keeps does not fit every slice")
    if predicted < WORTHWHILE:
        return Plan("layers", together, 1.0, 1.0, f"by batch it would be {predicted:.2f} times")
    return Plan("batch", together, predicted, ideal, "the batch is worth dividing")
