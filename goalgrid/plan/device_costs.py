"""What a grid takes of a GPU that need not be here: memory and hours of each recipe, measured, else estimated."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from goalgrid.grid.errors.wording import counted
from goalgrid.grid.expansion import Shared, Trial
from goalgrid.grid.identity import digest
from goalgrid.grid.protocols import protocol
from goalgrid.grid.settings import parts
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.grid.store.gpu_needs import RESERVED, Need
from goalgrid.grid.store.speed_probes import speed_of
from goalgrid.plan import gpu_costs
from goalgrid.plan.costs import CLOCK, Basis, Span, basis_of, steps_left
from goalgrid.plan.gpu_costs import Key
from goalgrid.plan.work import views_of
from goalgrid.reading.overview import Overview
from goalgrid.runners.gpu.cards import Card
from goalgrid.runners.gpu.shapes_of_data import PIECES, shapes_of

if TYPE_CHECKING:  # a plan without a GPU loads no torch
    from goalgrid.runners.gpu.estimate import Footprint
    from goalgrid.runners.gpu.fake_inputs import Shapes
    from goalgrid.runners.gpu.trace import Work

CONTEXT = 0.8e9
"""Bytes of a process beside its tensors: CUDA's context, and workspaces of cuBLAS and cuDNN."""
SMALLER = (2, 4, 8)
"""Parts of a batch that are tried where the batch does not fit."""


@dataclass(frozen=True)
class Taken:
    """What the trials of a recipe take of a GPU.

    Args:
        need: bytes on this card.
        memory: the source of the bytes, hours: of the hours.
        helps: what makes a trial fit that does not, with the bytes that it then takes.
        trials: that are left to train.
        seconds: of all these trials together; None: the card's rates are not known.
        views: seconds of the frozen image network, once for all trials; captions: of the frozen text network.
        ranking: seconds of ranking the training split by all trials that rank it.
        assumed: what was not read from data, by data set.
    """

    need: Need
    memory: str
    hours: str
    helps: dict[str, float]
    trials: int
    seconds: Span | None
    views: Span | None = None
    captions: Span | None = None
    ranking: Span | None = None
    assumed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def once(self) -> dict[str, Span]:
        """Seconds of what is done once for all trials, by what it is."""
        named = {
            "its frozen backbone": self.views,
            "its frozen text network": self.captions,
            "ranking the training split": self.ranking,
        }
        return {what: span for what, span in named.items() if span}

    @property
    def bytes(self) -> float:
        return self.need.alone + self.need.context

    @property
    def fits(self) -> bool:
        return _fits(self.need)

    @property
    def together(self) -> int:
        """Trials that have room on the card at the same time."""
        return int(1 / self.need.share() + 1e-9) if self.fits else 0

    def lines(self, key: Key) -> list[str]:
        card = f"{_gigabytes(self.bytes)} of {self.need.total / 1e9:.3g} GB ({self.memory})"
        if self.fits:
            room = f"{card}, fits; room for {self.together}" if self.together > 1 else f"{card}, fits, alone"
        else:
            room = f"{card}, does not fit"
        first = f"{key}: {room}"
        if self.seconds:
            first += f"; {counted(self.trials, 'trial')} {self.seconds.scaled(HOURS)} ({self.hours})"
        helps = "; ".join(f"{what}: {_gigabytes(size)} GB" for what, size in self.helps.items())
        once = [f"  {what} {span.scaled(CLOCK[1:])}, once for all (estimated)" for what, span in self.once.items()]
        return [first, *([f"  what helps: {helps or 'a larger GPU'}"] if not self.fits else []), *once]

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "memory_from": self.memory,
            "fits": self.fits,
            "together": self.together,
            "helps": self.helps,
            "trials": self.trials,
            "seconds": self.seconds.to_list() if self.seconds else None,
            "hours_from": self.hours if self.seconds else None,
            "feature_seconds": self.views.to_list() if self.views else None,
            "caption_feature_seconds": self.captions.to_list() if self.captions else None,
            "ranking_seconds": self.ranking.to_list() if self.ranking else None,
            "assumed": "; ".join(_assumed([self.assumed])),
        }


HOURS = CLOCK[1:]


@dataclass(frozen=True)
class DeviceCost:
    """What a grid takes of a GPU.

    Args:
        hourly: the price of an hour on it.
    """

    card: Card
    hourly: float | None
    taken: dict[Key, Taken]

    @property
    def seconds(self) -> Span | None:
        """GPU seconds of the grid; None where something does not fit, or the card's rates are not known."""
        parts = [taken.seconds for taken in self.taken.values()]
        if not all(parts) or not all(taken.fits for taken in self.taken.values()):
            return None
        once = [span for taken in self.taken.values() for span in taken.once.values()]
        return sum((span for span in (*parts, *once) if span), Span(0, 0))

    def lines(self) -> list[str]:
        if not self.taken:
            return ["nothing is left to train or to evaluate"]
        lines = [line for key, taken in self.taken.items() for line in taken.lines(key)]
        if self.seconds:
            price = (self.seconds * (self.hourly / 3600)).text(f"at {self.hourly:g} an hour") if self.hourly else ""
            lines.append(f"in all {self.seconds.scaled(HOURS)} of one {self.card.name}{price and f', {price}'}")
        if not self.card.bandwidth:
            lines.append(f"hours and cost need a GPU by its name: of {self.card.name} only the memory is known")
        if any(taken.seconds and taken.hours == "estimated" for taken in self.taken.values()):
            lines.append(
                "estimated hours: from a GPU that never waits to one that waits for the start of every operation;"
            )
            lines.append("reading and decoding images is not counted")
        return [*lines, *_assumed([taken.assumed for taken in self.taken.values()])]

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds
        return {
            "device": self.card.name,
            "memory_bytes": self.card.bytes,
            "recipes": {str(key): taken.to_dict() for key, taken in self.taken.items()},
            "seconds": seconds.to_list() if seconds else None,
            "cost": (seconds * (self.hourly / 3600)).to_list() if seconds and self.hourly else None,
        }


def device_cost(
    overview: Overview, trials: Sequence[Trial], replaced: Iterable[str], card: Card, hourly: float | None
) -> DeviceCost:
    """What these trials take of a GPU of this kind.

    Args:
        replaced: ids of the trials that begin anew.

    Raises:
        UserError: the architecture of weights is not known here, or data cannot be read.
    """
    groups = dict[Key, list[Trial]]()
    for trial in trials:
        groups.setdefault(Key.of(trial), []).append(trial)
    costs = _OnCard(overview, card, frozenset(replaced), gpu_costs.needs_of(overview, trials))
    return DeviceCost(card, hourly, {key: costs.taken(key, members) for key, members in groups.items()})


class _OnCard:
    """Looks up what was measured of a grid's trials, and estimates the rest."""

    def __init__(self, overview: Overview, card: Card, anew: frozenset[str], measured: dict[Key, Need]) -> None:
        self.overview, self.card, self.anew, self.measured = overview, card, anew, measured
        self.places = overview.grid.places()
        self._networks = dict[BackboneSettings, tuple[Any, tuple[int, ...]]]()
        self._text_networks = dict[tuple[TransformerSettings, int], tuple[Any, int]]()
        self._extracted = set[tuple[str, BackboneSettings | TransformerSettings]]()
        self._footprints: dict[str, Footprint] = {}
        self._ranked = set[str]()
        shared = {id(trial.shared): trial.shared for trial in overview.trials}.values()
        sizes = [overview.data.sizes(one) for one in {one.dataset.name: one for one in shared}.values()]
        tested = [size for of in sizes for split, size in of.items() if split != "train"]
        self._largest = max(tested, default=(1000, 5000))
        """Images and captions of the largest split that is evaluated: data sets then share an estimate."""

    def taken(self, key: Key, trials: Sequence[Trial]) -> Taken:
        from goalgrid.runners.gpu.estimate import kind_of

        if trials[0].shared.members:
            return self._averaged(trials)
        card, measured = self.card, self.measured.get(key)
        steps = sum(self._left(trial) for trial in trials)
        basis = basis_of(self.overview, key) if trials[0].epochs else None
        name = (basis.device or (measured.device if measured else "")) if basis and basis.gpu else ""
        known = basis.step * steps if basis and card.says and card.says in name else None
        if measured and known:
            need = Need(card.name, card.bytes, measured.context, measured.alone)
            return Taken(need, f"measured on {measured.device}", f"measured: {_source(basis)}", {}, len(trials), known)
        shapes, assumed = self._shapes(trials[0].shared)
        kinds = {id(shared): kind_of(shared) for shared in {id(one.shared): one.shared for one in trials}.values()}
        groups = dict[Any, list[Trial]]()
        for trial in trials:
            groups.setdefault(kinds[id(trial.shared)], []).append(trial)
        footprints = [(self._footprint(members[0], shapes), members) for members in groups.values()]
        most, (heaviest, *_) = max(footprints, key=lambda pair: pair[0].reserved)
        size, ranking = self._ranking(trials)
        context, alone = (measured.context, measured.alone) if measured else (CONTEXT, max(most.reserved, size))
        need = Need(card.name, card.bytes, context, alone)
        estimated = [self._seconds(members, footprint) for footprint, members in footprints] if card.bandwidth else []
        return Taken(
            need,
            f"measured on {measured.device}" if measured else "estimated",
            f"measured: {_source(basis)}" if known else "estimated",
            {} if _fits(need) else self._helps(heaviest, shapes),
            len(trials),
            known or (sum(estimated, Span(0, 0)) if estimated else None),
            self._views(trials[0].shared) if card.bandwidth else None,
            self._captions(trials[0].shared, shapes.typical) if card.bandwidth else None,
            ranking,
            assumed,
        )

    def _averaged(self, trials: Sequence[Trial]) -> Taken:
        """What ensembles take: all members are held, and each of them is evaluated."""
        by_id = {trial.id: trial for trial in self.overview.trials}
        members, rates = [by_id[parent] for parent in trials[0].parents], self.card.bandwidth > 0
        read = [self._shapes(member.shared) for member in members]
        needs = [self._footprint(member, shapes, epochs=0) for member, (shapes, _) in zip(members, read, strict=True)]
        once = [span for pair in zip(members, needs, strict=True) for span in self._evaluations(*pair)] if rates else []
        return Taken(
            Need(self.card.name, self.card.bytes, CONTEXT, sum(footprint.reserved for footprint in needs)),
            "estimated",
            "estimated",
            {},
            len(trials),
            sum(once, Span(0, 0)) * len(trials) if rates else None,
            assumed={name: [what for _, part in read for what in part[name]] for name in read[0][1]},
        )

    def _left(self, trial: Trial) -> int:
        return steps_left(self.overview, trial, 0, trial.id in self.anew)

    def _footprint(self, trial: Trial, shapes: "Shapes", **changed: Any) -> "Footprint":
        """What a trial takes, with these settings of its training changed."""
        from goalgrid.runners.gpu.estimate import estimate, kind_of

        train = trial.shared.train.model_copy(update=changed)
        settings = trial.settings.model_copy(update={"train": train, "dataset": self.overview.trials[0].shared.dataset})
        same = digest([speed_of(settings), kind_of(trial.shared), astuple(shapes), train.epochs > 0])
        if same not in self._footprints:
            self._footprints[same] = estimate(settings, shapes, self.places)
        return self._footprints[same]

    def _helps(self, trial: Trial, shapes: "Shapes") -> dict[str, float]:
        """What makes a trial fit, with its bytes: half precision; a smaller batch, or replicas that share the batch."""

        def size(**changed: Any) -> float:
            return CONTEXT + self._footprint(trial, shapes, **changed).reserved

        def fits(taken: float) -> bool:
            return taken <= self.card.bytes - RESERVED

        shared = trial.shared
        options, batch = dict[str, float](), shared.train.batch_size
        alone = bool(parts.clash(shared.model, shared.objective.name, replicas=2))
        if shared.train.precision != "bf16" and fits(half := size(precision="bf16")):
            options["train.precision=bf16"] = half
        whole, part = size(), size(batch_size=max(2, batch // 2))
        for count in SMALLER:
            taken = whole - 2 * (whole - part) * (1 - 1 / count)  # what a batch takes grows with its pairs
            if batch // count >= 2 and fits(taken):
                others = "" if alone else f", or resources.replicas={count} (each)"
                options[f"train.batch_size={batch // count}{others}"] = taken
                break
        return options

    def _seconds(self, trials: Sequence[Trial], footprint: "Footprint") -> Span:
        """Steps, a validation after every epoch, and a test of every trial; a trial without epochs has one of each."""
        counts = Counter[str]()
        for trial in trials:
            train, remaining = trial.shared.train, self._left(trial)
            steps = self.overview.data.epoch_steps(trial.shared) or 0
            frozen, first = (
                max(0, remaining - steps * (train.epochs - epochs))
                for epochs in (train.frozen_epochs, max(train.frozen_epochs, train.warmup_epochs))
            )
            counts.update(frozen=frozen, warming=first - frozen, step=remaining - first)
        works = [getattr(footprint, kind) * count for kind, count in counts.items() if count]
        tf32 = trials[0].shared.train.tf32
        total = sum((Span(*self.card.seconds(work, tf32=tf32)) for work in works), Span(0, 0))
        validation, tested = self._evaluations(trials[0], footprint)
        return total + validation * sum(trial.epochs or 1 for trial in trials) + tested * len(trials)

    def _evaluations(self, trial: Trial, footprint: "Footprint") -> tuple[Span, Span]:
        """Seconds of a validation and of a test; none where the sizes of the data are not known."""
        from goalgrid.runners.gpu.estimate_evaluation import pairs_ranked_anew
        from goalgrid.runners.training.inputs import protocols_of

        shared, settings = trial.shared, trial.settings
        sizes = self.overview.data.sizes(shared)
        if not sizes:
            return Span(0, 0), Span(0, 0)

        def seconds(work: "Work") -> Span:
            return Span(*self.card.seconds(work, tf32=shared.train.tf32))

        def embedded(images: int, captions: int) -> Span:
            return seconds(footprint.image) * images + seconds(footprint.text) * captions

        (images, captions), test = sizes["val"], sizes["test"]
        few = min(images, shared.dataset.val_images or images)
        part = captions * few // images
        validation = embedded(few, part) + seconds(footprint.score) * (few * part)
        folds = [protocol(name).fold for name in protocols_of(settings)]
        scored = sum(test[0] * test[1] * min(1.0, (fold or test[0]) / test[0]) for fold in folds)
        tested = embedded(*test) + seconds(footprint.score) * scored
        if footprint.anew:
            least, most = pairs_ranked_anew(settings, *test, folds)
            pair = seconds(footprint.anew)
            tested += embedded(*test) + Span(pair.least * least, pair.most * most)
        return validation, tested

    def _ranking(self, trials: Sequence[Trial]) -> tuple[int, Span | None]:
        """Bytes of ranking the training split, and seconds of all rankings not counted yet."""
        from goalgrid.runners.gpu.estimate_evaluation import ranking

        rankers = {trial.ranker for trial in trials if trial.ranker}
        ranker = next((trial for trial in self.overview.trials if trial.id in rankers), None)
        sizes = self.overview.data.sizes(trials[0].shared)
        if ranker is None or not sizes:
            return 0, None
        shapes, _ = self._shapes(ranker.shared)
        size, work = ranking(ranker.settings, shapes, self.places, sizes["train"])
        features = self.overview.home.features
        new = {name for name in rankers - self._ranked if not any(features.glob(f"negatives-{name}-*"))}
        self._ranked |= new
        known = new and self.card.bandwidth
        return size, (Span(*self.card.seconds(work, tf32=ranker.shared.train.tf32)) * len(new) if known else None)

    def _views(self, shared: Shared) -> Span | None:
        """Seconds of a frozen backbone; None: there is none, or another recipe counts it."""
        network, sizes = shared.model.image.feature_network, self.overview.data.sizes(shared)
        if network is None or not sizes or (shared.dataset.name, network) in self._extracted:
            return None
        self._extracted.add((shared.dataset.name, network))
        views = views_of(network, sizes)
        return Span(*self.card.seconds(self._network(network)[0])) * views

    def _captions(self, shared: Shared, typical: int) -> Span | None:
        """Seconds of a frozen text network; None: there is none, or another recipe counts it."""
        network, sizes = shared.model.text.feature_network, self.overview.data.sizes(shared)
        if network is None or not sizes or (shared.dataset.name, network) in self._extracted:
            return None
        self._extracted.add((shared.dataset.name, network))
        work, _ = self._text_network(network, typical)
        return Span(*self.card.seconds(work)) * sum(captions for _, captions in sizes.values())

    def _text_network(self, network: TransformerSettings, typical: int) -> tuple["Work", int]:
        from goalgrid.runners.gpu.architectures import of_caption_features

        if (network, typical) not in self._text_networks:
            self._text_networks[network, typical] = of_caption_features(network, PIECES, typical, self.places)
        return self._text_networks[network, typical]

    def _network(self, network: BackboneSettings) -> tuple["Work", tuple[int, ...]]:
        from goalgrid.runners.gpu.architectures import of_features

        if network not in self._networks:
            self._networks[network] = of_features(network, self.places)
        return self._networks[network]

    def _shapes(self, shared: Shared) -> tuple["Shapes", dict[str, list[str]]]:
        return shapes_of(
            shared,
            self.overview.grid.root(shared.dataset.name),
            self._largest,
            lambda network: self._network(network)[1],
            lambda network, typical: self._text_network(network, typical)[1],
        )


def _assumed(parts: Iterable[Mapping[str, Sequence[str]]]) -> list[str]:
    """A line for each data set that is not here."""
    union = dict[str, dict[str, None]]()
    for dataset, assumed in (entry for part in parts for entry in part.items()):
        union.setdefault(dataset, {}).update(dict.fromkeys(assumed))
    return [f"{dataset} is not here (--root): assumed {' and '.join(assumed)}" for dataset, assumed in union.items()]


def _fits(need: Need) -> bool:
    return need.alone + need.context <= need.total - RESERVED


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f}" if size < 1e10 else f"{size / 1e9:.0f}"


def _source(basis: Basis | None) -> str:
    return basis.source if basis else ""
