"""The data of a grid on this machine: what they hold, and which finished trials were trained on other data."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from goalgrid.grid import catalog
from goalgrid.grid.columns import with_extra
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Shared, Trial
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.settings import DataKey, TrialSettings
from goalgrid.grid.store.home import Home
from goalgrid.results.records.provenance import Now
from goalgrid.runners.training.batch_sizes import batches_of_epoch, check_batches

if TYPE_CHECKING:
    from goalgrid.retrieval.data.content import Content


class DataAtHand:
    """What the data sets of a grid hold on this machine, each read at most once.

    Data that are not on this machine, or that cannot be read, are not compared.
    """

    def __init__(self, grid: Grid, home: Home) -> None:
        self.grid, self.home = grid, home
        self.unreadable: dict[str, str] = {}
        """Why data cannot be read, by data set."""
        self._found: dict[DataKey, Content | None] = {}

    @property
    def now(self) -> Now:
        """The code and the data that would train the grid's trials now, for comparison with what records hold."""
        from goalgrid.runners.training.fingerprint import code_fingerprint

        return Now(code_fingerprint, self.fingerprint)

    def content(self, shared: Shared | TrialSettings) -> "Content | None":
        """Return what the data set of these settings holds; None where it cannot be compared."""
        key = DataKey.of(shared.dataset, shared.model, shared.objective.columns)
        if key not in self._found:
            try:
                self._found[key] = self._read(key)
            except UserError as error:
                self.unreadable[key[0]] = str(error)
                self._found[key] = None
        return self._found[key]

    def fingerprint(self, shared: Shared | TrialSettings) -> str:
        """Fingerprint of the data that these settings would train on now; empty where they cannot be compared."""
        content = self.content(shared)
        return content.fingerprint if content else ""

    def sizes(self, shared: Shared) -> dict[str, tuple[int, int]]:
        """Images and captions by split: of the data here, else the official sizes; empty where neither is known."""
        if content := self.content(shared):
            return {split: (images, captions) for split, images, captions in content.sizes}
        return {name: (s.images, s.captions) for name, s in catalog.described(shared.dataset.name).splits.items()}

    def epoch_steps(self, shared: Shared) -> int | None:
        """Steps of an epoch on the data here, else on the official data; None where their size is not known."""
        if not (sizes := self.sizes(shared)):
            return None
        learnt, _ = learnt_captions(shared, sizes["train"])
        return batches_of_epoch(learnt, shared.train)

    def check(self, trials: Sequence[Trial]) -> None:
        """Check that the data of these trials can be read, where this machine has a root for them; else UserError."""
        every = (trial.shared for trial in trials)
        keys = (DataKey.of(shared.dataset, shared.model, shared.objective.columns) for shared in every)
        for key in dict.fromkeys(keys):
            self._found[key] = self._read(key)
            for name in self.grid.evaluate.datasets:
                self._read(DataKey(name, key.features, None))

    def missing(self, trials: Iterable[Trial]) -> dict[str, str]:
        """Say why these trials, or their evaluations, cannot read data here, by data set without a folder."""
        named = dict.fromkeys(trial.shared.dataset.name for trial in trials)
        reasons = dict[str, str]()
        for name in [*named, *(self.grid.evaluate.datasets if named else ())]:
            if not catalog.described(name).embedded:
                from goalgrid.retrieval.data.content import checked_root

                try:
                    checked_root(name, self.grid.root(name))
                except UserError as error:
                    reasons[name] = str(error)
        return reasons

    def check_fit(self, trials: Iterable[Trial], *, allow_leak: bool) -> list[str]:
        """Check that these trials can be trained on the data here, as a launch does; else UserError.

        Returns what a user must know of the data. What a launch asks of its machine is left to it: data without a root
        here, weights, CPUs and GPUs.

        `allow_leak`: whether test images may train or validate.
        """
        from goalgrid.retrieval.fit import check_fit

        trials, lines = {id(trial.shared): trial for trial in trials}.values(), dict[str, None]()
        if any(trial.shared.train.computes_again for trial in trials):
            from goalgrid.runners.gpu.architectures import check_recomputation

            check_recomputation(trial.settings for trial in trials)
        for trial in trials:
            shared = trial.shared
            if content := self.content(shared):
                root = self.grid.root(shared.dataset.name)
                chooses = shared.train.selection != "last" or self.grid.select is not None
                allowed = {"allow_leak": allow_leak, "chooses": chooses}
                lines |= dict.fromkeys(check_fit(shared.dataset, shared.model, root, content, **allowed))
                captions, sure = learnt_captions(shared, self.sizes(shared)["train"])
                if sure:
                    check_batches(shared.train, captions, self.grid.resources)
        return list(lines)

    def check_calls(self, trials: Iterable[Trial]) -> list[str]:
        """Return how the pretrained networks on this machine are called, a line each, and where not as published.

        Raises:
            UserError: a network cannot be called, or its files do not decide what the settings leave to them.
        """
        from goalgrid.retrieval.encoders.calls.tower_calls import tower_calls

        shared = {id(trial.shared): trial.shared for trial in trials}.values()
        parts = dict.fromkeys((one.dataset, one.model) for one in shared if one.model.pretrained)
        calls = [call for part in parts for call in tower_calls(*part, self.grid.places())]
        return list(dict.fromkeys(line for call in calls for line in call.lines()))

    def check_starts(self, trials: Iterable[Trial]) -> list[str]:
        """Say how published checkpoints are other models than the trials to train that start from them, a line each.

        UserError: a checkpoint is not on this machine, or does not fit; or a trial starts from a model and trains none.
        """
        starting = {id(trial.shared): trial for trial in trials if trial.shared.train.starts_from or trial.parents}
        if any(trial.epochs == 0 and not trial.shared.members for trial in starting.values()):
            raise UserError("train.epochs = 0 trains nothing that starts from a model. Evaluate it: goalgrid evaluate.")
        if not (published := [trial.shared for trial in starting.values() if trial.shared.train.starts_from]):
            return []
        from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
        from goalgrid.retrieval.published.published_model import check_start
        from goalgrid.retrieval.words import vocabulary_files

        lines = dict[str, None]()
        for shared in published:
            vocabulary, root = shared.dataset.vocabulary, self.grid.root(shared.dataset.name)
            words = vocabulary_files.read(root / vocabulary) if vocabulary and root else None
            file = CheckpointFile.known(str(shared.train.starts_from), self.grid.checkpoints)
            lines[check_start(file, shared.model, words, self.grid.places())] = None
        return list(filter(None, lines))

    def _read(self, key: DataKey) -> "Content | None":
        name, features, vocabulary, extra = key
        root = self.grid.root(name)
        if root is None and not catalog.described(name).embedded:
            return None
        from goalgrid.retrieval.data.content import content

        columns = with_extra(self.grid.columns(name), extra)
        return content(name, root, features=features, vocabulary=vocabulary, kept=self.home.data, columns=columns)


def learnt_captions(shared: Shared, train: tuple[int, int]) -> tuple[int, bool]:
    """Count the captions that train in an epoch, of images and captions of the split; and whether that is certain.

    The first `dataset.train_images` have their share of the captions if all images have equally many.
    """
    images, captions = train
    few = min(images, shared.dataset.train_images or images)
    if shared.train.captions != "all":
        return few, True
    return captions * few // images, few == images
