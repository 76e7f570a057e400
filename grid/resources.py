"""How a grid runs on this machine or cluster: what a job asks for, and how failures are met. Never part of identity."""

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from grid.settings_base import Settings


class Resources(Settings):
    """[resources]: what a job asks of the machine."""

    cpu: PositiveInt = 1
    """CPUs of each process that trains."""
    gpu: NonNegativeFloat | None = None
    """Share of a GPU, or a whole number of GPUs; None: the share that the memory probe measured, 0 without a GPU."""
    replicas: PositiveInt = 1
    """Processes that train a trial together, each with a part of every batch, `cpu` CPUs and a GPU of its own.

    The gradient is the gradient of the whole batch: replicas train a trial for which a GPU is too small.
    """
    custom: dict[str, PositiveFloat] = {}
    """Further resources by the names that a Ray cluster's nodes give them, e.g. `"accelerator_type:A100" = 0.001`."""
    concurrency: PositiveInt | None = None
    """Jobs at a time; None: as many as the CPUs and GPUs hold."""
    workers: PositiveInt = 2
    """Threads that decode raw images, in each process that trains."""
    features: str | None = None
    """Folder of the features of frozen backbones; None: `features` in the runs folder."""

    @model_validator(mode="after")
    def _a_gpu_each(self) -> "Resources":
        if self.replicas > 1 and self.gpu not in (None, 0, self.replicas):
            raise ValueError(
                f"gpu = {self.gpu:g} does not go with replicas = {self.replicas}, which have a GPU each. "
                f"Leave gpu out, or give {self.replicas}; 0 trains on CPUs."
            )
        return self

    @property
    def cpus(self) -> int:
        """CPUs that a job asks for."""
        return self.cpu * self.replicas

    def gpus(self, share: float) -> float:
        """GPUs that a job asks for, if there are any; its recipe needs this share of a GPU."""
        if self.replicas > 1:
            return 0.0 if self.gpu == 0 else float(self.replicas)
        return share if self.gpu is None else self.gpu


class Reliability(Settings):
    """[reliability]: how much work a failure may cost, and how long to wait."""

    checkpoint_minutes: PositiveFloat | None = 10
    """Time between checkpoints; every epoch ends with a checkpoint, too."""
    checkpoint_steps: PositiveInt | None = None
    """Steps between checkpoints."""
    stall_minutes: PositiveFloat = 30
    """Time without any progress after which a trial is killed and tried again."""
    grace_seconds: NonNegativeFloat = 25
    """Time for the checkpoints of running trials when a launch is asked to end (SIGTERM, Ctrl-C)."""
    folder_seconds: NonNegativeFloat = 60
    """How long a node waits for a shared folder to appear."""
