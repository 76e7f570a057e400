"""In which precision a process computes."""

import torch

from goalgrid.grid.settings import TrainSettings, TrialSettings


def set_tf32(train: TrainSettings) -> None:
    """Have this process compute in TF32 on a GPU or not. torch's own default is TF32 for cuDNN's layers alone."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = train.tf32


def precision(settings: TrialSettings, device: torch.device) -> torch.autocast:
    """Autocast of encoders to bfloat16 where the recipe says so; objectives switch it off for themselves."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.train.precision == "bf16")
