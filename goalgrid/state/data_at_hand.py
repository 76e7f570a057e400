"""The data of a grid on this machine: sizes, fingerprints, and whether trials can be trained on it."""

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
    """Contents of a grid's data sets on this machine, each read at most once.

    Data that is missing here or cannot be read is not compared.
    """

    def __init__(self, grid: Grid, home: Home) -> None:
        self.grid, self.home = grid, home
        self.unreadable: dict[str, str] = {}
        """The reason why data cannot be read, by data set."""
        self._found: dict[DataKey, Content | None] = {}

    @property
    def now(self) -> Now:
        """The current code and data fingerprints of the grid's trials, for comparison with records."""
        from goalgrid.runners.training.fingerprint import code_fingerprint

        return Now(code_fingerprint, self.fingerprint)

    def content(self, shared: Shared | TrialSettings) -> "Content | None":
        """Return the content of the data set of these settings; None if it is missing here or cannot be read."""
        key = DataKey.of(shared.dataset, shared.model, shared.objective.columns)
        if key not in self._found:
            try:
                self._found[key] = self._read(key)
            except UserError as error:
                self.unreadable[key[0]] = str(error)
                self._found[key] = None
        return self._found[key]

    def fingerprint(self, shared: Shared | TrialSettings) -> str:
        """Return the fingerprint of the data that these settings would train on now; empty if it cannot be read."""
        content = self.content(shared)
        return content.fingerprint if content else ""

    def sizes(self, shared: Shared) -> dict[str, tuple[int, int]]:
        """Map splits to numbers of images and captions: of the data here, or the official sizes; empty if unknown."""
        if content := self.content(shared):
            return {split: (images, captions) for split, images, captions in content.sizes}
        return {name: (s.images, s.captions) for name, s in catalog.described(shared.dataset.name).splits.items()}

    def epoch_steps(self, shared: Shared) -> int | None:
        """Return the steps per epoch for the data here, or for the official sizes; None if these are unknown."""
        if not (sizes := self.sizes(shared)):
            return None
        learnt, _ = learnt_captions(shared, sizes["train"])
        return batches_of_epoch(learnt, shared.train)

    def check(self, trials: Sequence[Trial]) -> None:
        """Check that the data of these trials, if its folder is known, can be read; raise UserError if it cannot."""
        every = (trial.shared for trial in trials)
        keys = (DataKey.of(shared.dataset, shared.model, shared.objective.columns) for shared in every)
        for key in dict.fromkeys(keys):
            self._found[key] = self._read(key)
            for name in self.grid.evaluate.datasets:
                self._read(DataKey(name, key.features, None))

    def missing(self, trials: Iterable[Trial]) -> dict[str, str]:
        """Map each data set that these trials or their evaluations need but whose folder is missing to the reason."""
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
        """Check that these trials can be trained on the data here, as a launch does; raise UserError if they cannot.

        Returns notes on the data for the user. Requirements on the machine are only checked by the launch: data without
        a folder here, weights, CPUs and GPUs.

        `allow_leak`: whether test images may be in the training or validation split.
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
        """Describe how each pretrained network on this machine is called, and where that differs from its publication.

        Raises:
            UserError: if a network cannot be called, or its files lack a choice that the settings leave to them.
        """
        from goalgrid.retrieval.encoders.calls.tower_calls import tower_calls

        shared = {id(trial.shared): trial.shared for trial in trials}.values()
        parts = dict.fromkeys((one.dataset, one.model) for one in shared if one.model.pretrained)
        calls = [call for part in parts for call in tower_calls(*part, self.grid.places())]
        return list(dict.fromkeys(line for call in calls for line in call.lines()))

    def check_starts(self, trials: Iterable[Trial]) -> list[str]:
        """Describe how published checkpoints differ from the models of the trials that start from them, one line each.

        Raises UserError if a checkpoint is missing here or does not fit, or if a trial that starts from a model has no
        epochs.
        """
        starting = {id(trial.shared): trial for trial in trials if trial.shared.train.starts_from or trial.parents}
        if any(trial.epochs == 0 and not trial.shared.members for trial in starting.values()):
            raise UserError(
                "train.epochs = 0 evaluates a model as initialised by its recipe, but this trial starts from a trained "
                "model. To evaluate that model, use goalgrid evaluate."
            )
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
    """Return the number of captions trained on per epoch, and whether it is exact.

    `train`: images and captions of the training split. With `dataset.train_images`, the captions of the first images
    are estimated as if all images had equally many.
    """
    images, captions = train
    few = min(images, shared.dataset.train_images or images)
    if shared.train.captions != "all":
        return few, True
    return captions * few // images, few == images
