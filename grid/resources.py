"""How a grid runs on this machine or cluster: what a job asks for, and how failures are met. Never part of identity."""

from typing import Annotated

from pydantic import Field, model_validator

from grid.settings_base import Settings


class Resources(Settings):
    """[resources]: what a job asks of the machine."""

    cpu: Annotated[int, Field(ge=1)] = 1
    """CPUs of each process that trains."""
    gpu: Annotated[float, Field(ge=0)] | None = None
    """Share of one GPU, or a whole number of them; None: what its memory probe says where there is a GPU, else none."""
    replicas: Annotated[int, Field(ge=1)] = 1
    """Processes that train a trial together, each a part of every batch, with `cpu` CPUs and a GPU of its own.

    The gradient is that of the whole batch, so nothing else has to change: for what one GPU is too small for.
    """
    custom: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Further resources by the names that a Ray cluster's nodes give them, e.g. `"accelerator_type:A100" = 0.001`."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Jobs at a time; None: as many as the CPUs and GPUs hold."""
    workers: Annotated[int, Field(ge=1)] = 2
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
        """That a job asks for."""
        return self.cpu * self.replicas

    def gpus(self, share: float) -> float:
        """That a job asks for, where there are any.

        Args:
            share: of one GPU, that its recipe needs.
        """
        if self.replicas > 1:
            return 0.0 if self.gpu == 0 else float(self.replicas)
        return share if self.gpu is None else self.gpu


class Reliability(Settings):
    """[reliability]: how much work a failure may cost, and how long to wait."""

    checkpoint_minutes: Annotated[float, Field(gt=0)] | None = 10
    """A checkpoint is written when so much time has passed since the last one, beside the one of every epoch."""
    checkpoint_steps: Annotated[int, Field(ge=1)] | None = None
    """And whenever so many steps have."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30
    """A trial without any progress for so long is killed and tried again."""
    grace_seconds: Annotated[float, Field(ge=0)] = 25
    """For the checkpoint of every running trial when a launch is asked to end (SIGTERM, Ctrl-C)."""
    folder_seconds: Annotated[float, Field(ge=0)] = 60
    """How long a node waits for a shared folder to appear."""
