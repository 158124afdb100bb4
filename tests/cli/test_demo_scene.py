"""What the director knows and how it looks, without any process."""

import io

import pytest
from rich.console import Console

from semel_lab.demo.messages import Answered, Charged, Ready, Runs, Unanswered
from semel_lab.demo.scenario import story
from semel_lab.demo.state import Scene
from semel_lab.demo.view import Screen, picture

STORY = story(payments=2, workers=3, duplicates=6, seed=1)


@pytest.fixture
def scene() -> Scene:
    scene = Scene(STORY)
    for number, name in enumerate(STORY.workers):
        scene.heard(name, Ready(1000 + number))
    return scene


def test_duplicates_are_shared_out_over_all_workers(scene: Scene) -> None:
    asks = scene.asks(STORY.payments[0])
    assert {worker for worker, _ in asks} == set(STORY.workers)
    assert len({ask.call for _, ask in asks}) == 6


def test_the_calls_of_a_dead_worker_are_asked_again_elsewhere(scene: Scene) -> None:
    asks = scene.asks(STORY.payments[0])
    of_w1 = [ask.call for worker, ask in asks if worker == "w1"]
    scene.heard("w1", Runs("pay-1", 1, in_doubt=False))
    scene.heard("w1", Answered(of_w1[0], "pay-1", "ch_1", replayed=True, waited=True))
    kill = scene.struck("w1", "pay-1")
    assert (kill.worker, kill.pid, kill.attempt) == ("w1", 1000, 1)
    again = scene.orphans("w1")
    assert [ask.call for _, ask in again] == of_w1[1:]
    assert "w1" not in {worker for worker, _ in again}
    assert scene.payments["pay-1"].orphaned
    scene.heard("w2", Runs("pay-1", 2, in_doubt=True))
    assert not scene.payments["pay-1"].orphaned
    assert scene.payments["pay-1"].ran_by == ["w1", "w2"]


def test_it_is_done_when_every_caller_has_an_answer(scene: Scene) -> None:
    for payment in STORY.payments:
        for worker, ask in scene.asks(payment):
            assert not scene.done
            first = ask.call % 2
            answer = Answered(ask.call, payment.name, "ch", replayed=True, waited=False)
            scene.heard(worker, answer if first else Unanswered(ask.call, payment.name, "in_progress", "busy"))
    assert scene.done


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_scene_fits_the_terminal(scene: Scene, width: int) -> None:
    scene.asks(STORY.payments[0])
    scene.asks(STORY.payments[1])
    scene.heard("w1", Runs("pay-1", 1, in_doubt=False))
    scene.heard("w1", Charged("pay-1", 1, "ch_1", recognised=False))
    scene.struck("w1", "pay-1")
    scene.orphans("w1")
    scene.heard("w2", Runs("pay-2", 2, in_doubt=True))
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(picture(scene))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    shown = "\n".join(lines)
    for words in ("w1  pid 1000  ✘ killed inside pay-1", "runs pay-2", "0/6", "1 charges", "worker dead"):
        assert words in shown


def test_without_a_terminal_notes_are_plain_lines() -> None:
    output = io.StringIO()
    screen = Screen(Console(file=output, width=40))
    with screen:
        screen.note(1.5, "a line that is longer than the forty columns it is given \x1b[31m", "red")
        screen.update(Scene(STORY))
    assert output.getvalue() == "  1.50 s  a line that is longer than the forty columns it is given \\x1b[31m\n"
