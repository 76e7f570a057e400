"""`--notify`: a user's own command hears of the first failure and of the end, and can break nothing."""

from pathlib import Path

from goalgrid.runners.watching.notify import Notify

COUNTS = {"trials": 4, "done": 1, "failed": 1}
SAY = 'echo "$GOALGRID_EVENT $GOALGRID_STATE $GOALGRID_DONE/$GOALGRID_TRIALS $GOALGRID_FAILED: $GOALGRID_MESSAGE"'


def test_the_first_failure_and_the_end_are_told(tmp_path: Path) -> None:
    told, warned = tmp_path / "told", list[str]()
    notify = Notify(f"{SAY} >> {told}", "demo", warned.append)
    for name in ("a", "b"):
        notify.failed(f"trial {name} 'failed' $HOME", COUNTS)
    notify.ended("failed", "demo: 4 trials", COUNTS | {"failed": 2})
    lines = ["failed running 1/4 1: trial a 'failed' $HOME", "ended failed 1/4 2: demo: 4 trials"]
    assert told.read_text().splitlines() == lines
    assert warned == []


def test_a_command_that_fails_is_told_and_nothing_else_happens() -> None:
    warned = list[str]()
    Notify("echo no network >&2; exit 7", "demo", warned.append).ended("done", "", COUNTS)
    Notify("", "demo", warned.append).ended("done", "", COUNTS)
    assert warned == ["--notify 'echo no network >&2; exit 7' exited with 7: no network"]
