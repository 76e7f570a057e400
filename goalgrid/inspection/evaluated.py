"""Evaluate a checkpoint on a split, protocol or other data, and compare the metrics with its record."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.grid import catalog, evaluations, trusted_code
from goalgrid.grid.cli_option import option
from goalgrid.grid.errors import UserError, check_known, counted, user_path
from goalgrid.grid.gridfile import Grid, Location
from goalgrid.grid.messages import Step, tell, warn
from goalgrid.grid.objectives import unknown_objective
from goalgrid.grid.protocols import ECCV, shown
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.pretrained_networks import RANDOM
from goalgrid.grid.store.files import read_json
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.grid.store.imported import add
from goalgrid.grid.store.output_files import write_output
from goalgrid.grid.store.saved_grid import read_grid, save_grid
from goalgrid.state.data_at_hand import DataAtHand
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall

if TYPE_CHECKING:
    from goalgrid.results.records.models import Speed
    from goalgrid.runners.training.machine import Machine
    from goalgrid.runners.trial.loaded_model import Evaluation, LoadedModel

SPLITS = ("val", "test")


@dataclass(frozen=True)
class EvaluationRequest:
    """The requested evaluation of a checkpoint: options of `goalgrid evaluate`, with defaults and help texts."""

    weights: tuple[str, ...] = ()
    """Folders of pretrained networks, NAME=DIR each."""
    into: str = option("", "Add FILE to the tables of this grid, as an imported record.", "GRID")
    as_objective: str = option("", "With --into: the objective FILE was trained with.", "NAME")
    split: str = option("test", "Split to evaluate: val or test.")
    protocol: str | None = option(
        None, "Protocol, e.g. coco-5x1k; eccv: ECCV Caption and CxC; default: the data set's."
    )
    root: str = option("", "Folder of other data of the same kind; default: the trial's data.", "[DATASET=]DIR")
    speed: bool = option(False, "Also benchmark it: pairs scored and queries answered per second; tables show it.")

    def __post_init__(self) -> None:
        check_known("split", self.split, SPLITS)

    def protocol_of(self, settings: TrialSettings) -> str | None:
        """Return the protocol to evaluate by (None: the whole split); raise UserError if the data set lacks it."""
        if self.protocol is None:
            return settings.dataset.protocol if self.split == "test" else None
        known = catalog.protocols(settings.dataset.name)
        if settings.dataset.name == "coco" and self.split == "test":
            known = [*known, ECCV]
        if self.protocol == ECCV and settings.model.rerank_k:
            raise UserError(
                "--protocol eccv needs a ranking of all captions, but this model's second stage re-ranks only the top "
                f"{settings.model.rerank_k} per query: leave the option out."
            )
        check_known("protocol", self.protocol, known, where=f"of data set {settings.dataset.name!r}")
        return settings.dataset.protocol if self.protocol == ECCV else self.protocol

    def check_weights(self, settings: TrialSettings) -> None:
        """Raise a UserError if --weights names weights that the model does not read."""
        known = sorted({part.weights for part in settings.model.pretrained} - {RANDOM})
        for name, _ in (_pair("--weights", entry) for entry in self.weights):
            check_known("weights", name, known, where="in --weights")

    @property
    def data(self) -> tuple[str, str]:
        """The data set named by --root (empty if it names none), and the folder."""
        name, named, folder = self.root.partition("=")
        return (name, folder) if named else ("", self.root)

    def moved(self, settings: TrialSettings) -> TrialSettings:
        """Return the settings with the data set named by --root; raise UserError if that data set has no folder."""
        name, _ = self.data
        if self.root:
            catalog.has_folder(name or settings.dataset.name, f"--root {self.root}")
        return evaluations.moved(settings, name or settings.dataset.name)

    def grid(self, home: Home, settings: TrialSettings, root: str) -> Grid | None:
        """Return the grid to report the checkpoint in; None without --into.

        `settings`: settings of the checkpoint for the data set in folder `root`.

        Raises UserError if the grid or objective does not exist, or the data differ.
        """
        if not self.into:
            return None
        grid, dataset = recall(self.into, home), settings.dataset.name
        if self.as_objective not in (known := grid.catalog.objectives):
            raise UserError(unknown_objective(self.as_objective, known=known))
        check_known("data set", dataset, grid.datasets, where=f"of grid {grid.name!r}")
        moved = grid.model_copy(update={"data": {**grid.data, dataset: Location(root=root)}})
        here, given = (DataAtHand(of, home).fingerprint(settings) for of in (grid, moved))
        if here and here != given:
            raise UserError(
                f"{root} holds different data from {grid.root(dataset)}, the {dataset} of grid {grid.name!r}, so the "
                "two cannot share a table. Use the grid's data for the checkpoint, or put it in a separate grid."
            )
        return grid


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The result of evaluating a checkpoint on a split.

    Args:
        subject: the trial's id, or the file.
        facts: facts about the checkpoint, by name.
        judged: metrics of ECCV Caption and CxC, if requested.
        recorded: the metrics in its record for this split and protocol; empty if there are none.
        speed: the speed of the model on the test split; None: not requested.
    """

    subject: str
    settings: TrialSettings
    split: str
    protocol: str | None
    evaluation: "Evaluation"
    facts: Mapping[str, Any] = field(default_factory=dict)
    judged: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, float] = field(default_factory=dict)
    speed: "Speed | None" = None
    ids: bool = False
    """Whether the data contain COCO's id of each caption."""
    unknown: float = 0.0
    """Share of the words in the captions, from 0 to 1, that are not in the model's vocabulary."""

    @property
    def metrics(self) -> dict[str, float]:
        return self.evaluation.ranks.metrics()

    def to_dict(self) -> dict[str, Any]:
        ranks = {"i2t": self.evaluation.ranks.i2t.tolist(), "t2i": self.evaluation.ranks.t2i.tolist()}
        named = {"subject": self.subject, **self.facts, "dataset": self.settings.dataset.name, "split": self.split}
        named["unknown_words"] = self.unknown
        record = {"recorded": self.recorded} if self.recorded else {}
        speed = {"speed": self.speed} if self.speed else {}
        metrics = {"metrics": {**self.metrics, **self.judged}, "further": self.evaluation.ranks.further()}
        return {**named, "protocol": self.protocol, **metrics, **record, **speed, "ranks": ranks}

    def lines(self) -> list[str]:
        """Return the metrics in percent, and whether they match the record."""
        metrics, ranks, dataset = self.metrics, self.evaluation.ranks, self.settings.dataset.name
        by = f", protocol {shown(self.protocol) if self.split == 'test' else self.protocol}" if self.protocol else ""
        noun = catalog.noun(dataset, self.settings.model)
        sizes = f"{counted(len(ranks.i2t), noun)}, {counted(len(ranks.t2i), 'caption')}"
        facts = "".join(f", {name} {value}" for name, value in self.facts.items())
        lines = [
            f"{self.subject}{facts}",
            f"{self.split} split of {dataset}{by}: {sizes}",
            f"      {'R@1':>6}  {'R@5':>6}  {'R@10':>6}  median rank  mean rank  geometric mean of R@K",
        ]
        further = ranks.further()
        for direction in ("i2t", "t2i"):
            row = "  ".join(f"{metrics[f'{direction}_r{k}']:6.2f}" for k in (1, 5, 10))
            median, mean = metrics.get(f"{direction}_medr"), further.get(f"{direction}_meanr")
            middle = "--" if median is None else f"{median:.1f}".removesuffix(".0")
            average = "--" if mean is None else f"{mean:.1f}"
            lines.append(f"  {direction} {row}  {middle:>11}  {average:>9}  {further[f'{direction}_gmean']:21.2f}")
        lines.append(f"  rsum {metrics['rsum']:.2f}")
        lines += [f"  {100 * self.unknown:.1f} % of the words are unknown to the model"] if self.unknown else []
        if ranks.listed is not None:
            lines.append(f"  the second stage re-ranked the top {ranks.listed} of each query")
        if self.judged:
            lines += ["ECCV Caption: mAP@R, R-Precision, R@1; CxC: R@1, R@5, R@10"]
            if not self.ids:
                lines += ["  the captions have no ids (sentid): their order is assumed to be that of Karpathy's file"]
            for direction in ("i2t", "t2i"):
                values = [value for name, value in self.judged.items() if name.startswith(direction)]
                lines.append(f"  {direction} " + "  ".join(f"{value:6.2f}" for value in values))
        if other := [name for name, value in self.recorded.items() if value != metrics.get(name)]:
            differ = ", ".join(f"{name} {self.recorded[name]:.2f}" for name in other)
            lines.append(f"the record of this trial differs: {differ}")
        elif self.recorded:
            lines.append("the record of this trial matches these numbers")
        return [*lines, *(self.speed.lines() if self.speed else [])]

    def save(self, path: Path) -> None:
        """Write embeddings and ranks as .npz."""
        import numpy as np

        content, arrays = io.BytesIO(), dict[str, Any](self.evaluation.arrays())
        np.savez(content, **arrays)
        with zipfile.ZipFile(content, "a") as archive:
            archive.comment = b"written by goalgrid evaluate"
        write_output(path, content.getvalue())


def of_trial(trial_id: str, home: Home, request: EvaluationRequest) -> Evaluated:
    """Evaluate a finished trial's best checkpoint on a split of its own or other data; raises UserError."""
    folder, machine, trained = _trained(trial_id, home, request)
    from goalgrid.runners.trial.loaded_model import LoadedModel

    request.check_weights(trained)
    settings = request.moved(trained)
    protocol = request.protocol_of(settings)
    loaded = LoadedModel.of_trial(folder, machine, settings if request.root else None)
    recorded = {} if request.root else _recorded(folder, trained, request.split, protocol)
    facts = {"recipe": trained.recipe, "objective": trained.objective.name, "seed": trained.seed}
    return _evaluated(loaded, trial_id, request, protocol, facts, recorded, None if request.root else folder)


def loaded(trial_id: str, home: Home) -> "LoadedModel":
    """Load the best checkpoint of a finished trial with its training data; raises as `of_trial`."""
    folder, machine, _ = _trained(trial_id, home, EvaluationRequest())
    from goalgrid.runners.trial.loaded_model import LoadedModel

    return LoadedModel.of_trial(folder, machine)


def of_file(path: Path, family: str, vocabulary: Path | None, home: Home, request: EvaluationRequest) -> Evaluated:
    """Evaluate a published checkpoint on a split; raise UserError if file, family, vocabulary and data do not match.

    `vocabulary`: file of the vocabulary it was trained with; None: it uses a tokenizer.
    """
    from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
    from goalgrid.retrieval.published.published_model import PublishedModel
    from goalgrid.retrieval.words import vocabulary_files
    from goalgrid.runners.trial.loaded_model import LoadedModel

    file = CheckpointFile.read(path)
    words = vocabulary_files.read(vocabulary) if vocabulary else []
    places = {name: Path(folder) for name, folder in (_pair("--weights", entry) for entry in request.weights)}
    model = PublishedModel.of(file, family, words, places)
    name, folder = request.data
    name = name or model.dataset
    if not request.root or not name:
        known = ", ".join(catalog.names("datasets"))
        raise UserError(f"missing option --root DATASET=DIR: the data to evaluate on. Data sets: {known}, or your own.")
    catalog.has_folder(name, f"--root {request.root}")
    settings = model.trial(name, request.as_objective) if request.into else model.trial(name)
    request.check_weights(settings)
    protocol = request.protocol_of(settings)
    grid, imported = request.grid(home, settings, folder), None
    machine = _machine_of(home, [f"{name}={folder}"], request.weights)
    loaded = LoadedModel.of_published(model, settings, machine)
    if grid:
        from goalgrid.runners.trial.loaded_model import write_record

        imported = write_record(loaded, model, home, machine)
        if not home.grid(grid.name).grid.exists():
            save_grid(grid, GridState.of(grid, home).trials, home)
        add(grid, home, imported.trial_id)
        tell(f"{imported.trial_id} was added to grid {grid.name!r}")
    facts = {"checkpoint of": model.map.description, **model.file.facts}
    return _evaluated(loaded, str(path), request, protocol, facts, folder=imported)


def _evaluated(
    loaded: "LoadedModel",
    subject: str,
    request: EvaluationRequest,
    protocol: str | None,
    facts: Mapping[str, Any],
    recorded: Mapping[str, float] = {},
    folder: TrialFolder | None = None,
) -> Evaluated:
    """Evaluate a loaded model, and measure its speed if requested.

    `folder`: the trial folder to store the speed in; None: it is not stored.
    """
    evaluation = loaded.evaluate(request.split, protocol)
    loaded.check_numbers(recorded, evaluation.ranks)
    judged = loaded.eccv_metrics(evaluation) if request.protocol == ECCV else {}
    speed = loaded.speed(protocol) if request.speed else None
    if speed and folder:
        try:
            speed.write(folder.speed)
        except UserError as error:
            warn(f"the speed was not saved: {error}")
    split = loaded.inputs.pairs.splits[request.split]
    unknown = loaded.inputs.reader.unknown_share(split.captions)
    read = (request.split, protocol, evaluation, facts, judged, recorded, speed, split.ids is not None, unknown)
    return Evaluated(subject, loaded.settings, *read)


def _trained(trial_id: str, home: Home, request: EvaluationRequest) -> "tuple[TrialFolder, Machine, TrialSettings]":
    """Return the folder of a finished trial with weights, a machine to load it on, and its training settings."""
    standing = sorted(home.standing())
    if not standing:
        raise UserError(f"no trial has run under {home.path}. Give the runs folder with --runs or GOALGRID_RUNS.")
    check_known("trial", trial_id, standing, where=f"under {home.path}")
    folder = home.trial(trial_id)
    state, grids = folder.state(), [name for name in home.grids() if trial_id in home.grid(name).ids()]
    if state is not State.DONE:
        again = Step.of("resume", grids[0], runs=home.path, load=True) if grids else None
        helps = " To finish it: {step}." if again else ""
        why = f"trial {trial_id} is {state.value}, not done: its best checkpoint may still change."
        raise UserError(why + helps, again)
    if folder.imported.exists():
        file = read_json(folder.imported).get("file", "its file")
        raise UserError(f"{trial_id} is the record of a published checkpoint. Evaluate {file} with --as FAMILY.")
    dataset = str(read_json(folder.settings).get("dataset", {}).get("name", ""))
    name, folder_of_data = request.data
    grid = _grid_of(grids, dataset, home)
    roots = [f"{name or dataset}={folder_of_data}"] if request.root else []
    machine = _machine_of(home, roots, request.weights, grid)
    from goalgrid.runners.trial.loaded_model import settings_of

    trained = settings_of(folder, machine.catalog)
    if trained.ensemble:
        members = ", ".join(f"--trial {member}" for member in trained.ensemble)
        raise UserError(f"{trial_id} is an ensemble: it has no weights. Evaluate its members: {members}.")
    return folder, machine, trained


def _grid_of(names: Iterable[str], dataset: str, home: Home) -> Grid | None:
    """Return the first of these grids that knows the folder of the data set, otherwise the first readable one."""
    grids, untrusted = list[Grid](), list[trusted_code.Untrusted]()
    for name in names:
        try:
            grids.append(read_grid(name, home))
        except trusted_code.Untrusted as error:
            untrusted.append(error)
        except UserError:  # a grid of an older version; another may name the trial, too
            continue
    if untrusted and not grids:
        raise untrusted[0]
    return next((grid for grid in grids if grid.root(dataset)), next(iter(grids), None))


def _machine_of(home: Home, roots: list[str], weights: tuple[str, ...], grid: Grid | None = None) -> "Machine":
    """Return the machine for an evaluation: a GPU if there is one, with data and weights of a grid or these options."""
    import torch

    from goalgrid.runners.launch.jobs import machine_for
    from goalgrid.runners.training.machine import Machine

    gpu = torch.cuda.is_available()
    known = machine_for(grid, home, gpu=gpu) if grid else Machine(gpu=gpu, features=home.features, data=home.data)
    folders = dict(known.roots) | dict(_pair("--root", entry) for entry in roots)
    places = dict(known.weights) | dict(_pair("--weights", entry) for entry in weights)
    known.begin()
    return replace(known, roots=tuple(folders.items()), weights=tuple(places.items()))


def _pair(option: str, entry: str) -> tuple[str, str]:
    name, separator, folder = entry.partition("=")
    if not separator:
        raise UserError(f"{option} {entry!r} is not NAME=DIR.")
    return name, str(user_path(folder).absolute())


def _recorded(folder: TrialFolder, settings: TrialSettings, split: str, protocol: str | None) -> dict[str, float]:
    """Return the metrics in a trial's record for a split and protocol; empty if there are none."""
    from goalgrid.results.records import record
    from goalgrid.results.records.scores import by_protocol

    columns = ["protocol", "other_metrics", *(f"{part}_{name}" for part in SPLITS for name in record.METRICS)]
    (row,) = record.collect([folder.record], columns).to_pylist()
    if split == "val":
        return {} if protocol else {name: row[f"val_{name}"] for name in record.METRICS}
    values = {name: by_protocol(row, protocol or settings.dataset.protocol, name) for name in record.METRICS}
    return {name: value for name, value in values.items() if value is not None}
