"""Files of a runs folder that no reader can take: nested 100,000 deep, or of 20 GB that take no room on the disk."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.errors import NESTED, UserError, parsed_json, parsed_toml
from goalgrid.grid.overrides import key_and_value
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.retrieval.growing_array import GrowingArray
from goalgrid.runners.training import checkpoints

from .conftest import Verb

VERBS = ("status demo", "status demo --json", "table demo --format csv", "prune", "plan demo")
FILES = (
    "settings.json", "environment.json", "history.jsonl", "vocabulary.json", "attempts/001.json",
    "attempts/001.end.json", "record.parquet", "best.ckpt",
)  # fmt: skip
OF_GRID = (
    "grid.toml",
    "trials.txt",
    "imported.txt",
    "notes.md",
    "probe.json",
    "choices.json",
    "searches.jsonl",
    "slurm.txt",
)


def deep(path: Path) -> None:
    path.write_text('{"a": ' + "[" * 100_000, encoding="utf-8")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 * 2**30)


def ends(verb: Verb, command: str, home: Home) -> str:
    """What a command prints, or its message; the fixture lets no other exception pass."""
    try:
        return verb(*command.split(), runs=home).output
    except UserError as error:
        return str(error)


@pytest.mark.gate
@pytest.mark.parametrize("damage", [deep, sparse])
def test_no_file_of_a_trial_ends_a_command_for_the_others(
    damage: Callable[[Path], None], pair: Home, verb: Verb, tmp_path: Path
) -> None:
    first = pair.trials()[0]
    for number, name in enumerate(FILES):
        path, sound = first.path / name, tmp_path / "sound"
        shutil.copy(path, sound)
        damage(path)
        said = {command: ends(verb, command, pair) for command in VERBS}
        assert "sig-ms_cir" in said["table demo --format csv"], (name, said)
        assert all(said.values()), (name, said)
        taken = ends(verb, f"merge {pair.path}", Home(tmp_path / f"into{number}"))
        assert "1 taken, 1 refused" in taken or not name.endswith((".parquet", ".ckpt", "history.jsonl")), (name, taken)
        if name in ("settings.json", "vocabulary.json", "best.ckpt"):
            assert str(path) in ends(verb, f"evaluate --trial {first.trial_id}", pair), name
        shutil.copy(sound, path)


@pytest.mark.parametrize("damage", [deep, sparse])
def test_a_file_of_a_grid_costs_a_message_at_most(damage: Callable[[Path], None], pair: Home, verb: Verb) -> None:
    folder = pair.grid("demo").path
    for name in OF_GRID:
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        damage(folder / name)
        for command in VERBS[:4]:
            assert ends(verb, command, pair).strip(), (name, command)
        (folder / name).unlink() if before is None else (folder / name).write_bytes(before)
    assert "2 done" in ends(verb, "status demo", pair)


def test_a_record_with_a_right_checksum_and_deep_settings_is_named(pair: Home, verb: Verb) -> None:
    first = pair.trials()[0]
    (row,) = record.collect([first.record]).to_pylist()
    record.write(first.record, row | {"environment": '{"versions": ' + "[" * 100_000})
    assert "nested more than" in ends(verb, "status demo", pair) + ends(
        verb, f"evaluate --trial {first.trial_id}", pair
    )
    assert "sig-ms_cir" in ends(verb, "table demo --format csv", pair)


def test_a_damaged_grid_there_is_left_out_and_the_others_are_merged(pair: Home, verb: Verb, tmp_path: Path) -> None:
    shutil.copytree(pair.grid("demo").path, pair.grid("other").path)
    path = pair.grid("other").grid
    deep(path)
    into = Home(tmp_path / "into")
    said = verb("merge", str(pair.path), runs=into)
    assert said.exit_code == 3
    assert f"left out: grid '{path}': {path} is not valid TOML" in said.stderr
    assert "2 taken" in said.stdout
    with pytest.raises(UserError, match="is not valid TOML"):
        verb("merge", str(pair.path), "--grid", "other", runs=into)


def test_a_trial_for_which_the_disk_has_no_room_is_not_copied(pair: Home, verb: Verb, tiny_disk: Path) -> None:
    log = pair.trials()[0].attempts_folder / "001.log"
    os.truncate(log, 3 * 2**30)
    with pytest.raises(UserError, match=r"No space left|copying a trial needs 3\.2 GB, but only .* are free"):
        verb("merge", str(pair.path), runs=Home(tiny_disk))
    assert sum(path.lstat().st_size for path in tiny_disk.rglob("*") if path.is_file()) < 200_000


def test_a_checkpoint_without_its_checksum_is_refused_by_its_end(tmp_path: Path) -> None:
    path = tmp_path / "best.ckpt"
    sparse(path)
    with pytest.raises(checkpoints.Corrupt, match="it has no checksum"):
        checkpoints.load(path, torch.device("cpu"))


@pytest.mark.parametrize("levels", [NESTED, NESTED + 1])
def test_values_are_nested_so_deep_and_no_deeper(levels: int) -> None:
    lists, tables = "[" * levels + "]" * levels, ".".join("a" * levels)
    if levels == NESTED:
        assert str(parsed_json(lists)) == str(parsed_toml(f"a = {lists[1:-1]}")["a"]).join("[]") == lists
        assert parsed_toml(f"{tables[:-2]} = 1")
        return
    for parse, text in ((parsed_json, lists), (parsed_toml, f"a = {lists}"), (parsed_toml, f"{tables} = 1")):
        with pytest.raises(ValueError, match=f"more than {NESTED} levels"):
            parse(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100 + "0" + "]" * 100, "9" * 5000])
def test_a_value_on_the_command_line_that_no_parser_takes_is_a_message(text: str) -> None:
    with pytest.raises(UserError, match="--set seeds: "):
        key_and_value(f"seeds={text}")


def test_a_grid_file_nested_deep_is_a_message(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("seeds = " + "[" * 100_000, encoding="utf-8")
    with pytest.raises(UserError, match="is not valid TOML: it is nested more than"):
        verb("plan", str(tmp_path / "mine.toml"), runs=Home(tmp_path))


@pytest.mark.parametrize("words", [("run", "demo", "--here"), ("status", "demo"), ("export", "demo", "s3://bucket/x")])
def test_an_address_is_no_folder(
    words: tuple[str, ...], pair: Home, verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`s3://bucket/runs` would name ./s3:/bucket/runs."""
    runs = pair if "s3://bucket/x" in words else Home(Path("s3://bucket/runs"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"'s3:/+bucket.*is an address, not a folder"):
        verb(*words, runs=runs)
    assert not (tmp_path / "s3:").exists()


def test_a_list_of_blocks_that_holds_anything_else_counts_the_blocks_in_it(tmp_path: Path) -> None:
    """Of features that are written block by block: the list is a file that others may damage."""
    array = GrowingArray(tmp_path / "a.npy", [2, 2])
    array.write(0, np.ones((2, 3), np.float32))
    array.journal.write_bytes(b"0\n\xff\n99\n-1\none\n1")
    assert GrowingArray(tmp_path / "a.npy", [2, 2]).missing == {1}
    array.journal.unlink()
    os.mkfifo(array.journal)
    assert GrowingArray(tmp_path / "a.npy", [2, 2]).missing == {0, 1}
