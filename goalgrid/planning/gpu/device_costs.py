"""Estimate memory and hours of each recipe on a GPU, from measurements if there are any, otherwise by tracing."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

from goalgrid import objectives
from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.expansion import Shared, Trial, chains
from goalgrid.grid.groups import grouped
from goalgrid.grid.identity import digest
from goalgrid.grid.protocols import protocol
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrainSettings, components
from goalgrid.grid.store.gpu_needs import RESERVED, Need
from goalgrid.grid.store.speed_probes import RATES, speed_of
from goalgrid.planning.costs import Key, Span, basis_of, needs_of, steps_left, total, views_of
from goalgrid.planning.division import Division
from goalgrid.planning.gpu.decoding import decoding
from goalgrid.planning.gpu.estimate import HOURS, ONCE, Estimate, Remedy, assumed_of
from goalgrid.planning.gpu.footprint import Footprint, estimate, half_peak, peak, reranked_pairs
from goalgrid.planning.gpu.shapes_of_data import PIECES, Shapes, shapes_of
from goalgrid.planning.gpu.trace import Work
from goalgrid.planning.gpu.untrained import of_caption_features, of_features, rehearsing
from goalgrid.planning.machine_use import GpuMachine, MachineUse
from goalgrid.retrieval.data.images import KEPT_BYTES
from goalgrid.runners.gpu.architectures import WORDS
from goalgrid.runners.gpu.cards import Card
from goalgrid.runners.gpu.memory_probe import trained_by
from goalgrid.runners.training.inputs import protocols_of
from goalgrid.state.grid_state import GridState

CONTEXT = 0.8e9
"""GPU memory in bytes of a process in addition to its tensors: CUDA context, cuBLAS and cuDNN workspaces."""
DEFAULTS = {name: TrainSettings.model_fields[name].default for name in RATES}
"""Defaults of the training settings that affect values but not which operations are executed."""
COPIED = 1.8e9
"""Rate in bytes per second of copying a checkpoint while the step waits (839 MB in 0.47 s); a thread writes it."""
SMALLER = (2, 4, 8)
"""Numbers of parts that a batch is split into if it does not fit."""


@dataclass(frozen=True)
class DeviceCost:
    """Memory, time and price of a grid on a GPU."""

    rented: GpuMachine
    taken: dict[Key, Estimate]
    chains: Sequence[Sequence[Key]]
    """Chains of dependent trials, each trial given by its key."""
    division: Division

    @property
    def once(self) -> Span:
        """The seconds of work done once, before any trial."""
        return total(span for taken in self.taken.values() for span in taken.once.values())

    @property
    def host_bytes(self) -> float:
        return max(taken.host for taken in self.taken.values())

    @property
    def device_bytes(self) -> float:
        return max(taken.need.alone for taken in self.taken.values())

    @property
    def without(self) -> list[Key]:
        """The recipes that do not fit on the card, unless by a remedy that changes results."""
        return [key for key, taken in self.taken.items() if not taken.trainable]

    @property
    def seconds(self) -> Span | None:
        """GPU seconds of all recipes that can be trained, with remedies where needed.

        None if the card's speed is unknown, or nothing can be trained.
        """
        spans = [taken.trained for taken in self.taken.values() if taken.trainable]
        known = [span for span in spans if span]
        return total([*known, self.once]) if known and len(known) == len(spans) else None

    @property
    def machine(self) -> MachineUse | None:
        """How the GPUs of the machine are used; None if `seconds` is None, or the user asked about no machine."""
        if not self.seconds or not self.rented.gpus:
            return None
        return MachineUse(self.rented, self.division, self.jobs, self.once)

    @cached_property
    def jobs(self) -> list[Span]:
        """GPU seconds of each chain that can be trained."""
        known = {key: taken.trained for key, taken in self.taken.items() if taken.trainable}
        of_trial = {key: span * (1 / self.taken[key].trials) for key, span in known.items() if span}
        spans = ([of_trial[key] for key in chain if key in of_trial] for chain in self.chains)
        return [total(of_chain) for of_chain in spans if of_chain]

    @property
    def feeding(self) -> tuple[int, int]:
        """The number of trials that keep a GPU busy, and CPUs per trial to decode images: the maxima over recipes."""
        feeding = [taken.feeding for taken in self.taken.values()]
        cpus = max((math.ceil(threads / jobs) for jobs, threads in feeding), default=1)
        return max((jobs for jobs, _ in feeding), default=1), cpus

    def _in_formats(self) -> list[str]:
        """Report how long trials estimated in fp32 would take in other number formats."""
        everything, none = [taken for taken in self.taken.values() if taken.trainable], Span(0, 0)
        spans = {
            setting: total((taken.formats.get(setting) or taken.seconds or none) * taken.slower for taken in everything)
            for setting in dict.fromkeys(name for taken in everything for name in taken.formats)
        }
        hours = ", ".join(f"{setting} {span.scaled(HOURS)}" for setting, span in spans.items())
        return [f"with {hours}: changes results, hence different trial ids"] if spans else []

    def _remedies(self) -> list[str]:
        """Report the settings assumed in the total, or why there is no total."""
        remedies = grouped(
            (taken.remedy.setting, str(key))
            for key, taken in self.taken.items()
            if not taken.fits and taken.remedy and taken.seconds
        )
        lines = [f"the total assumes {setting} for {', '.join(keys)}" for setting, keys in remedies.items()]
        if self.without:
            names = " or ".join(map(str, self.without))
            lines.append(f"no total: no setting that keeps the results makes {names} fit on {self.rented.card.name}")
        return lines

    def lines(self) -> list[str]:
        if not self.taken:
            return ["nothing is left to train or to evaluate"]
        card = self.rented.card
        lines = [line for key, taken in self.taken.items() for line in taken.lines(key)] + self._remedies()
        if self.seconds:
            part = "all others" if self.without else "in all"
            lines.append(f"{part} {self.seconds.scaled(HOURS)} of one {card.name}{self.rented.price(self.seconds)}")
            lines += [*(self.machine.lines() if self.machine else ()), *self._in_formats()]
        if not card.bandwidth:
            lines.append(f"hours and cost need the name of the GPU: for {card.name} only the memory is known")
        if any(taken.seconds and taken.hours == "estimated" for taken in self.taken.values()):
            ends = "lower bound: GPU always busy; upper bound: launch-bound"
            lines += [f"estimated hours: {ends},", "or bound by image decoding and copying of checkpoints"]
        return [*lines, *assumed_of([taken.assumed for taken in self.taken.values()])]

    def to_dict(self) -> dict[str, Any]:
        hourly, machine = self.rented.hourly, None if self.without else self.machine
        seconds = None if self.without else self.seconds
        return {
            "device": self.rented.card.name,
            "memory_bytes": self.rented.card.bytes,
            "recipes": {str(key): taken.to_dict() for key, taken in self.taken.items()},
            "without": list(map(str, self.without)),
            "seconds": seconds,
            "clock_seconds": machine.clock if machine else None,
            **(
                {"gpus": self.rented.all_gpus, "gpus_busy": machine.busy, "gpus_as_fast": machine.as_fast}
                if machine
                else {}
            ),
            "cost": seconds * (hourly / 3600) if seconds and hourly else None,
        }


def device_cost(
    grid_state: GridState,
    trials: Sequence[Trial],
    replaced: Iterable[str],
    rented: GpuMachine,
    *,
    jobs: int | None = None,
) -> DeviceCost:
    """Estimate the memory and time of trials on a GPU; see `goalgrid.planning.device_cost`."""
    groups, chained = grouped((Key.of(trial), trial) for trial in trials), chains(trials)
    sharing = math.ceil(len(chained) / rented.all_gpus) if rented.gpus else None
    costs = _OnCard(grid_state, rented, frozenset(replaced), needs_of(grid_state, trials), sharing)
    taken = {key: costs.taken(key, members) for key, members in groups.items()}
    resources = grid_state.grid.resources
    together = [taken[key].together for key, (first, *_) in groups.items() if first.epochs]
    room = rented.jobs(min(together, default=1), resources.cpus)
    division = Division.of(resources, room, jobs)
    return DeviceCost(rented, taken, [list(map(Key.of, chain)) for chain in chained], division)


class _OnCard:
    """Looks up the measurements of a grid's trials on a card, and estimates the rest."""

    def __init__(
        self,
        grid_state: GridState,
        rented: GpuMachine,
        restarted: frozenset[str],
        measured: dict[Key, Need],
        sharing: int | None = None,
    ) -> None:
        """`sharing`: number of jobs available per GPU; None: as many as have room."""
        self.rented, self.card, self.sharing = rented, rented.card, sharing
        self.grid_state, self.restarted, self.measured = grid_state, restarted, measured
        self.places = grid_state.grid.places()
        self._networks: dict[tuple[Any, int], tuple[Work, Any]] = {}
        self._extracted = set[tuple[str, Any]]()
        self._counts = dict[str, Any]()
        by_dataset = {trial.shared.dataset.name: trial.shared for trial in grid_state.trials}
        sizes = [item for shared in by_dataset.values() for item in grid_state.data.sizes(shared).items()]
        tested = [size for split, size in sizes if split != "train"]
        self._largest = max(tested, default=(1000, 5000))
        """Images and captions of the largest evaluated split, used for all data sets so that they share estimates."""

    def taken(self, key: Key, trials: Sequence[Trial]) -> Estimate:
        if trials[0].shared.members:
            return self._averaged(trials)
        card, measured = self.card, self.measured.get(key)
        basis = basis_of(self.grid_state, key) if trials[0].epochs else None
        name = (basis.device or (measured.device if measured else "")) if basis and basis.gpu else ""
        known, hours = None, "estimated"
        if basis and card.says and card.says in name:
            known, hours = basis.step * sum(map(self._left, trials)), f"measured: {basis.source}"
        if measured:
            need = Need(card.name, card.bytes, measured.context, measured.alone)
            memory = f"measured on {measured.device}"
            if known and basis:
                host = 3 * basis.best.most + self._kept_bytes(trials[0].shared)
                return Estimate(need, memory, hours, len(trials), known, host=host)
        shapes, assumed = self._shapes(trials[0].shared)
        kinds = {place: _kind_of(one) for place, one in {id(trial.shared): trial.shared for trial in trials}.items()}
        groups = grouped((kinds[id(trial.shared)], trial) for trial in trials)
        footprints = [(self._footprint(members[0], shapes), members) for members in groups.values()]
        most, (heaviest, *_) = max(footprints, key=lambda pair: pair[0].reserved)
        if not measured:
            need, memory = Need(card.name, card.bytes, CONTEXT, most.reserved), "estimated"
        host = 3 * most.weights + self._kept_bytes(heaviest.shared)
        taken = Estimate(need, memory, hours, len(trials), known, assumed=assumed, host=host)
        if not taken.fits and trials[0].epochs:
            taken = replace(taken, helps=self._helps(heaviest, shapes))
        return self._timed(taken, trials[0].shared, footprints, shapes) if card.bandwidth else taken

    def _timed(
        self, taken: Estimate, shared: Shared, footprints: Sequence[tuple[Footprint, list[Trial]]], shapes: Shapes
    ) -> Estimate:
        """Add hours unless they were measured: the maximum of GPU and decoding time, also in other number formats."""
        resources, formats = self.grid_state.grid.resources, dict[str, Span]()
        together = min(taken.together, taken.trials, self.sharing or taken.trials)
        jobs = self.rented.jobs(together, resources.cpus)
        threads = self.rented.threads(jobs, resources.threads)
        grid = self.grid_state.grid
        view, root = shared.model.image.view, grid.root(shared.dataset.name)
        network = shared.model.image.feature_network
        tables = grid.columns(shared.dataset.name), self.grid_state.home.data
        decode = decoding(shared.dataset.name, root, view, *tables) if view else None

        def hours(card: Card) -> Span:
            other = copy(self)
            other.card = card
            return total(other._seconds(members, footprint) for footprint, members in footprints)

        once = self._once(shared, shapes.typical, decode.rate(resources.threads) if decode else None)
        if taken.seconds:
            return replace(taken, once=once)
        card, seconds, text, fed = self.card, hours(self.card), "", 0.0
        if shared.train.precision == "fp32" and not shared.train.tf32 and card.bf16 > card.fp32:
            half = replace(card, fp32=card.bf16)
            fastest = hours(replace(half, bandwidth=2 * card.bandwidth))
            formats["train.precision=bf16"] = Span(fastest.least, hours(half).most)
            if card.tf32 > card.fp32:
                formats["train.tf32=true"] = hours(replace(card, fp32=card.tf32))
        enough = math.ceil(seconds.most / seconds.least) if seconds.least else 1
        busy = min(taken.together, enough, self.sharing or enough)
        feeding = max(1, busy), 1
        if decode and not network and seconds.least:
            pictures = sum(self._pictures(trial) for _, members in footprints for trial in members)
            fed, taken_up = pictures / decode.rate(threads), pictures / seconds.least
        if decode and fed and not self._kept(shared, "train"):
            feeding = max(1, busy), math.ceil(taken_up * decode.seconds)
            give = "gives" if threads == 1 else "give"
            text = f"decoding: {counted(threads, 'thread')} {give} {decode.rate(threads):,.0f} images per second "
            text += f"({decode.source}), the GPU takes {taken_up:,.0f}"
            if fed > seconds.least:
                text += f": {self.rented.fed_by(feeding[1], jobs)}"
        longer = {setting: span.at_least(fed) for setting, span in formats.items()}
        return replace(taken, seconds=seconds.at_least(fed), once=once, decoding=text, formats=longer, feeding=feeding)

    def _pictures(self, trial: Trial) -> float:
        """Return the number of images a trial decodes for steps, validations and the test; cached ones count once."""
        shared, epochs, read = trial.shared, trial.epochs or 1, self._left(trial) * trial.shared.train.batch_size
        sizes = self.grid_state.data.sizes(shared)
        if not sizes:
            return read
        validated = sizes["val"][0] * (1 if self._kept(shared, "val") else epochs)
        return (sizes["train"][0] if self._kept(shared, "train") else read) + validated + sizes["test"][0]

    def _kept(self, shared: Shared, split: str) -> bool:
        """Return whether a trial decodes a split only once and caches it: few, small images without augmentation."""
        view, sizes = shared.model.image.view, self.grid_state.data.sizes(shared)
        if not view or not sizes or (split == "train" and view.random):
            return False
        return 3 * view.size**2 * sizes[split][0] <= KEPT_BYTES

    def _kept_bytes(self, shared: Shared) -> int:
        """Return the bytes of the images that a trial caches in host memory."""
        view, sizes = shared.model.image.view, self.grid_state.data.sizes(shared)
        return sum(3 * view.size**2 * sizes[split][0] for split in sizes if view and self._kept(shared, split))

    def _averaged(self, trials: Sequence[Trial]) -> Estimate:
        """Return the estimate for ensembles: all members are in memory, and each is evaluated."""
        by_id = {trial.id: trial for trial in self.grid_state.trials}
        members, rates = [by_id[parent] for parent in trials[0].parents], self.card.bandwidth > 0
        read = [self._shapes(member.shared) for member in members]
        needs = [self._footprint(member, shapes, epochs=0) for member, (shapes, _) in zip(members, read, strict=True)]
        once = [span for pair in zip(members, needs, strict=True) for span in self._evaluations(*pair)] if rates else []
        need = Need(self.card.name, self.card.bytes, CONTEXT, sum(footprint.reserved for footprint in needs))
        assumed = {name: [what for _, part in read for what in part[name]] for name in read[0][1]}
        seconds = total(once) * len(trials) if rates else None
        return Estimate(need, "estimated", "estimated", len(trials), seconds, assumed=assumed)

    def _left(self, trial: Trial) -> int:
        return steps_left(self.grid_state, trial, 0, trial.id in self.restarted)

    def _footprint(self, trial: Trial, shapes: Shapes, **changed: Any) -> Footprint:
        """Return memory and work of a trial, with these training settings changed."""
        footprint: Footprint = self._counted(estimate, trial, shapes, **changed)
        return footprint

    def _counted(self, count: Callable[..., Any], trial: Trial, shapes: Shapes, **changed: Any) -> Any:
        """Return `count` of a trial, cached across trials whose steps have the same operations."""
        alike = {"recipe": "", "dataset": self.grid_state.trials[0].shared.dataset}
        settings = trained_by(trial.settings.model_copy(update=alike), **DEFAULTS, **changed)
        same = digest(
            [count.__name__, speed_of(settings), _kind_of(trial.shared), astuple(shapes), changed.get("epochs")]
        )
        if same not in self._counts:
            self._counts[same] = count(settings, shapes, self.places)
        return self._counts[same]

    def _helps(self, trial: Trial, shapes: Shapes) -> list[Remedy]:
        """Return remedies that make a trial fit: recomputation, half precision, a smaller batch, or replicas."""
        shared, whole = trial.shared, self._footprint(trial, shapes, micro_batch=None)
        batch, room = shared.train.batch_size, self.card.bytes - RESERVED - CONTEXT
        remedies = list[Remedy]()
        half = self._counted(half_peak, trial, shapes)
        fewer = {batch // count: whole.of_pairs(batch / count, batch, half) for count in SMALLER if batch // count >= 2}
        part = next((pairs for pairs, taken in fewer.items() if taken <= room), None)
        slower = None
        if self.card.bandwidth:
            step, again = (self._span(footprint.step, shared).least for footprint in (whole, whole.again(batch)))
            slower = again / step
        if not shared.train.computes_again:
            with suppress(UserError):  # batch norms that learn
                blocks = self._counted(peak, trial, shapes, checkpoint_activations=True)
                if blocks < 0.9 * whole.trained:  # else there are no blocks
                    remedies.append(Remedy("train.checkpoint_activations=true", blocks, slower))
            with suppress(UserError):
                if part:
                    rehearsing(trained_by(trial.settings, micro_batch=part), shapes, self.places)  # it may be refused
                    remedies.append(Remedy(f"train.micro_batch={part}", fewer[part], slower))
        if shared.train.precision != "bf16" and whole.reserved / 2 <= room:
            half_size = self._counted(peak, trial, shapes, precision="bf16")
            remedies.append(Remedy("train.precision=bf16", half_size, others=" (another trial)"))
        if part:
            alone = bool(components.clash(shared.model, shared.objective, Resources(replicas=2).components))
            others = "" if alone else f", or resources.replicas={batch // part} (each)"
            remedies.append(Remedy(f"train.batch_size={part}", fewer[part], others=f" (another trial){others}"))
        return [replace(remedy, bytes=CONTEXT + remedy.bytes) for remedy in remedies if remedy.bytes <= room]

    def _span(self, work: Work, shared: Shared) -> Span:
        return Span(*work.seconds(self.card, tf32=shared.train.tf32))

    def _seconds(self, trials: Sequence[Trial], footprint: Footprint) -> Span:
        """Return the seconds of all steps, one validation per epoch, and one test per trial."""
        counts = Counter[str]()
        for trial in trials:
            train, remaining = trial.shared.train, self._left(trial)
            steps = self.grid_state.data.epoch_steps(trial.shared) or 0
            frozen, first = (
                max(0, remaining - steps * (train.epochs - epochs))
                for epochs in (train.frozen_epochs, max(train.frozen_epochs, train.warmup_epochs))
            )
            counts.update(frozen=frozen, warming=first - frozen, step=remaining - first)
        works = [getattr(footprint, kind) * count for kind, count in counts.items() if count]
        validation, tested = self._evaluations(trials[0], footprint)
        steps_of_all = total(self._span(work, trials[0].shared) for work in works)
        copied = Span(3, 4) * (footprint.weights / COPIED)  # weights and both moments; and weights, where they are best
        steps_of_all += copied * sum(trial.epochs for trial in trials)
        return steps_of_all + validation * sum(trial.epochs or 1 for trial in trials) + tested * len(trials)

    def _evaluations(self, trial: Trial, footprint: Footprint) -> tuple[Span, Span]:
        """Return the seconds of one validation and of one test; 0 if the sizes of the data are unknown."""
        shared, settings = trial.shared, trial.settings
        sizes = self.grid_state.data.sizes(shared)
        if not sizes:
            return Span(0, 0), Span(0, 0)
        image, text, score = (self._span(work, shared) for work in (footprint.image, footprint.text, footprint.score))
        (images, captions), test = sizes["val"], sizes["test"]
        few = min(images, shared.dataset.val_images or images)
        part = captions * few // images
        validation = image * few + text * part + score * (few * part)
        folds = [protocol(name).fold for name in protocols_of(settings)]
        scored = sum(test[0] * test[1] * min(1.0, (fold or test[0]) / test[0]) for fold in folds)
        embedded = image * test[0] + text * test[1]
        tested = embedded + score * scored
        if footprint.rerank:
            least, most = reranked_pairs(settings, *test, folds)
            pair = self._span(footprint.rerank, shared)
            tested += embedded + Span(pair.least * least, pair.most * most)
        return validation, tested

    def _once(self, shared: Shared, typical: int, rate: float | None) -> dict[str, Span]:
        """Return the seconds of the frozen networks that have not been counted for another recipe.

        Args:
            rate: images decoded per second for them.
        """
        sizes, spans = self.grid_state.data.sizes(shared), dict[str, Span]()
        for what, network, length in zip(
            ONCE, (shared.model.image.feature_network, shared.model.text.feature_network), (0, typical), strict=True
        ):
            if network and sizes and (shared.dataset.name, network) not in self._extracted:
                self._extracted.add((shared.dataset.name, network))
                count = sum(captions for _, captions in sizes.values()) if length else views_of(network, sizes)
                span = Span(*self._network(network, length)[0].seconds(self.card)) * count
                spans[what] = span.at_least(count / rate) if rate and not length else span
        return spans

    def _network(self, network: Any, typical: int = 0) -> tuple[Work, Any]:
        """Return the work of a frozen network and its feature shape; `typical`: tokens per caption (0: images)."""
        if (network, typical) not in self._networks:
            of_captions = of_caption_features(network, PIECES, typical, self.places) if typical else None
            self._networks[network, typical] = of_captions or of_features(network, self.places)
        return self._networks[network, typical]

    def _shapes(self, shared: Shared) -> tuple[Shapes, dict[str, list[str]]]:
        grid, name = self.grid_state.grid, shared.dataset.name
        tables = grid.columns(name), self.grid_state.home.data
        root, of_network = grid.root(name), lambda *network: self._network(*network)[1]
        shapes, assumed = shapes_of(shared, root, self._largest, of_network, *tables)
        if assumed and shapes.words in WORDS.values():  # data sets share an estimate: by the largest vocabulary
            shapes = replace(shapes, words=max(WORDS.values()))
        return shapes, assumed


def _kind_of(shared: Shared) -> tuple[tuple[str, ...], bool]:
    """Return the properties that memory and work of a step depend on: components, and whether gradients are dense."""
    goal = shared.objective
    dense = shared.model.of_sets and not objectives.built(goal).learns_from_few
    return goal.needs, dense
