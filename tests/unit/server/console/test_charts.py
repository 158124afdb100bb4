"""The charts: every record is drawn once, inside its frame, and the table says the same."""

from datetime import UTC, datetime, timedelta

from semel import Semel
from semel.core.record import Record
from semel.server.console.charts import Sample, draw_all, meter


def make_sample(number: int, name: str = "op") -> Sample:
    with Semel("memory://") as semel:
        for each in range(number):
            semel.run(f"k{each}", lambda: None, operation=f"{name}-{each % 12}", fingerprint=None)
        records: list[Record] = list(semel.records())
    return Sample(records, datetime.now(UTC) + timedelta(minutes=1), is_all=True)


def test_every_claim_is_in_one_part_of_the_time() -> None:
    rates, durations, _ = draw_all(make_sample(40))
    assert sum(int(cell) for row in rates.rows for cell in row[1:]) == 40
    assert sum(int(row[1]) for row in durations.rows) == 40


def test_shapes_stay_inside_their_chart() -> None:
    for chart in draw_all(make_sample(25)):
        for bar in chart.bars:
            assert bar.x >= 0
            assert bar.y >= 0
            assert bar.x + bar.width <= chart.width + 0.1
            assert bar.y + bar.height <= chart.height + 0.1


def test_one_record_is_enough_for_a_chart() -> None:
    sample = make_sample(1)
    assert len(draw_all(sample)) == 3
    assert sample.duplicate_share == "0 %"


def test_a_long_name_is_known_by_its_beginning() -> None:
    _, _, duplicates = draw_all(make_sample(1, "shop.invoicing.services.InvoiceService.send_invoice"))
    assert duplicates.texts[0].words == "shop.invoicing.services.InvoiceService.send_i…"


def test_a_meter_is_as_wide_as_its_parts() -> None:
    assert meter([("good", 1), ("bad", 0), ("warn", 3)], 8) == [
        {"x": 0.0, "width": 125.0, "tone": "good"},
        {"x": 125.0, "width": 375.0, "tone": "warn"},
    ]
    assert meter([("good", 0)], 0) == []
