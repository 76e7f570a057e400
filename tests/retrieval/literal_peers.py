"""The peers' models with the names that their published files have, and their forward passes, a caption at a time.

Nothing here is shared with `retrieval`, but for the literal scorers of these tests.
"""

import argparse
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from goalgrid.grid.settings.scorers import BfanSettings, ScanSettings
from tests.retrieval import literal_scorers
from tests.retrieval.literal_scorers import l2

WIDTH, DIM, WORD, REGIONS = 12, 16, 6, 5
"""Of features, of the joint space and of words; regions of an image."""


class Mlp(nn.Module):
    """Its second batch norm is never applied."""

    def __init__(self, width: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, hidden), nn.Linear(hidden, dim)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(hidden), nn.BatchNorm1d(dim)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](torch.relu(self.bns[0](self.layers[0](x))))


class Gpo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(32, 1, bias=False)

    def forward(self, members: Tensor) -> Tensor:
        """Of one set (n, d)."""
        place = torch.arange(len(members))[:, None].float()
        angle = place * torch.exp(torch.arange(0, 32, 2).float() * (-math.log(10000.0) / 32))
        encoding = torch.zeros(len(members), 32)
        encoding[:, 0::2], encoding[:, 1::2] = angle.sin(), angle.cos()
        states = self.gru(encoding[None])[0][0]
        weights = torch.softmax(self.linear((states[:, :32] + states[:, 32:]) / 2) / 0.1, 0)
        return (members.sort(dim=0, descending=True).values * weights).sum(0)


class Ap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.balance = nn.Linear(DIM, DIM), nn.Linear(DIM, 1)

    def forward(self, members: Tensor) -> Tensor:
        """Of one set (n, d): alone in its batch, so that nothing is padded."""
        ordered = members.sort(dim=0, descending=True).values
        embedding = (ordered * torch.softmax(ordered, 0)).sum(0)
        token = (ordered * torch.softmax(torch.relu(self.linear(ordered)), 0)).sum(0)
        both = torch.stack([token, embedding])
        return (both * torch.softmax(self.balance(both), 0)).sum(0)


class Block(nn.Module):
    """A bottleneck of torchvision's ResNets, which strides in its second convolution; BUTD's strides in its first."""

    def __init__(self, width: int, inner: int, out: int, stride: int, *, butd: bool = False) -> None:
        super().__init__()
        first, second = (stride, 1) if butd else (1, stride)
        self.conv1, self.bn1 = nn.Conv2d(width, inner, 1, first, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, second, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        if stride > 1 or width != out:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        short = self.downsample(x) if hasattr(self, "downsample") else x
        x = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return torch.relu(self.bn3(self.conv3(x)) + short)


class Resnet(nn.Module):
    """Of torchvision's names, thin; its last layer is taken away, as VSE++ does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 4, 16, 1), Block(16, 4, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 4, 16, 2))
        self.layer3 = nn.Sequential(Block(16, 4, 16, 2))
        self.layer4 = nn.Sequential(Block(16, 8, 32, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


class ButdResnet(nn.Module):
    """VSE-infinity's backbone of BUTD's detector, thin: on blue, green and red from 0 to 255, without their means."""

    MEANS = (102.9801, 115.9465, 122.7717)

    def __init__(self) -> None:
        super().__init__()
        stem = [
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 0, ceil_mode=True),
        ]
        widths = (8, 16), (16, 16), (16, 16), (16, 32)
        stages = [
            nn.Sequential(
                Block(width, out // 4, out, 1 + (place > 0), butd=True),
                *[Block(out, out // 4, out, 1) for _ in range(place % 2)],
            )
            for place, (width, out) in enumerate(widths)
        ]
        self.base, self.top = nn.Sequential(*stem, *stages[:3]), nn.Sequential(stages[3])

    def forward(self, pixels: Tensor) -> Tensor:
        """Cells (b, n, 32) of pictures in red, green and blue."""
        pixels = pixels.flip(1).float() - torch.tensor(self.MEANS)[:, None, None]
        return self.top(self.base(pixels)).flatten(2).transpose(1, 2)


class Image(nn.Module):
    """`EncoderImage...` of all peers: a linear map, then what the family has beside."""

    def __init__(self, family: str, kind: str, width: int) -> None:
        super().__init__()
        self.family = family
        if kind == "resnet":
            self.cnn = nn.DataParallel(Resnet())
        self.fc = nn.Linear(32 if kind == "resnet" else width, DIM)
        if family in ("vse-infinity", "vse-2ad", "rvse"):
            self.mlp = Mlp(DIM if family == "rvse" else width, DIM // 2, DIM)
        if family in ("vse-infinity", "rvse"):
            self.gpool = Gpo()
        if family == "vse-2ad":
            self.pool = Ap()

    def forward(self, image: Tensor) -> Tensor:
        """Of one image: regions (n, k), a vector (k), or pixels from 0 to 255 (3, h, w)."""
        if hasattr(self, "cnn"):
            mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
            pixels = (image / 255 - mean[:, None, None]) / deviation[:, None, None]
            image = l2(self.cnn.module(pixels[None]), 1)[0]
        found = self.fc(image)
        if self.family == "rvse":
            found = self.mlp(found) + found
        elif hasattr(self, "mlp"):
            found = self.mlp(image) + found
        pool = getattr(self, "gpool", getattr(self, "pool", lambda members: members))
        return l2(pool(found), -1)


class Text(nn.Module):
    """`EncoderText` of all peers."""

    def __init__(self, family: str, kind: str, words: int, bert: Path | None) -> None:
        super().__init__()
        self.family = family
        self.recurrent = "cap_rnn" if family == "sgraf" else "rnn"
        if bert is not None:
            from transformers import BertModel

            self.bert = BertModel.from_pretrained(bert)
            head = nn.Linear(self.bert.config.hidden_size, DIM)
            setattr(self, "fc" if family == "vse-2ad" else "linear", head)
        else:
            self.embed = nn.Embedding(words, WORD)
            setattr(self, self.recurrent, nn.GRU(WORD, DIM, batch_first=True, bidirectional=family != "vsepp"))
        if family in ("vse-infinity", "rvse"):
            self.gpool = Gpo()
        if family == "vse-2ad":
            self.pool = Ap()

    def forward(self, ids: Tensor) -> Tensor:
        """Of one caption."""
        if hasattr(self, "bert"):
            head = self.fc if self.family == "vse-2ad" else self.linear
            states = head(self.bert(ids[None]).last_hidden_state[0])
        else:
            states = getattr(self, self.recurrent)(self.embed(ids)[None])[0][0]
            if self.family == "vsepp":
                return l2(states[-1], -1)
            states = (states[:, :DIM] + states[:, DIM:]) / 2
        pool = getattr(self, "gpool", getattr(self, "pool", lambda members: members))
        return l2(pool(states), -1)


def _sequence(dim: int, out: int, norm: int = 0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, out), *([nn.BatchNorm1d(norm)] if norm else []))


class Similarity(nn.Module):
    """`EncoderSimilarity` of SGRAF."""

    def __init__(self, kind: str, width: int = 8) -> None:
        super().__init__()
        self.kind = kind
        self.v_global_w, self.t_global_w = nn.Module(), nn.Module()
        for part, norms in ((self.v_global_w, (REGIONS, DIM)), (self.t_global_w, (0, 0))):
            part.embedding_local, part.embedding_global = (_sequence(DIM, DIM, norm) for norm in norms)
            part.embedding_common = _sequence(DIM, 1)
        self.sim_tranloc_w, self.sim_tranglo_w = nn.Linear(DIM, width), nn.Linear(DIM, width)
        self.sim_eval_w = nn.Linear(width, 1)
        if kind == "SGR":
            self.SGR_module = nn.ModuleList([nn.Module() for _ in range(2)])
            for step in self.SGR_module:
                step.graph_query_w, step.graph_key_w, step.sim_graph_w = (nn.Linear(width, width) for _ in range(3))
        else:
            self.SAF_module = nn.Module()
            self.SAF_module.attn_sim_w, self.SAF_module.bn = nn.Linear(width, 1), nn.BatchNorm1d(1)

    def forward(self, images: Tensor, captions: list[Tensor]) -> Tensor:
        steps = list(getattr(self, "SGR_module", []))
        own = SimpleNamespace(
            sharpness=9.0, local=self.sim_tranloc_w, whole=self.sim_tranglo_w, score=self.sim_eval_w,
            of_image=_whole(self.v_global_w), of_text=_whole(self.t_global_w),
        )  # fmt: skip
        if steps:
            own.queries, own.keys, own.graphs = zip(
                *((step.graph_query_w, step.graph_key_w, step.sim_graph_w) for step in steps), strict=True
            )
        else:
            own.filter, own.norm = self.SAF_module.attn_sim_w, self.SAF_module.bn
        return literal_scorers.sgraf(own, images, captions)  # type: ignore[arg-type]


def _whole(part: Any) -> SimpleNamespace:
    local, mean = part.embedding_local, part.embedding_global
    norms = {"local_norm": local[1], "mean_norm": mean[1]} if len(local) > 1 else {}
    return SimpleNamespace(local=local[0], mean=mean[0], common=part.embedding_common, **norms)


SCAN = {"cross_attn": "i2t", "agg_func": "LogSumExp", "lambda_softmax": 4.0, "lambda_lse": 5.0,
        "raw_feature_norm": "clipped_l2norm", "bi_gru": True}  # fmt: skip
BFAN = {"focal_type": "prob", "lambda_softmax": 20.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "vsepp": {"measure": "cosine", "use_abs": False, "no_imgnorm": False, "num_layers": 1, "data_name": "f8k_precomp"},
    "scan": SCAN,
    "bfan": BFAN,
    "sgraf": {"bi_gru": True, "sgr_step": 2},
}


class Peer:
    """A peer's model with random weights, in evaluation.

    Args:
        kind: bigru or bert; resnet; SGR or SAF.
        bert: folder of a network for `kind` bert.
    """

    def __init__(self, family: str, kind: str, words: int, bert: Path | None = None, width: int = WIDTH) -> None:
        torch.manual_seed(0)
        self.family, self.kind = family, kind
        self.image = Image(family, kind, width).eval()
        self.text = Text(family, kind, words, bert if kind == "bert" else None).eval()
        self.parts: list[nn.Module] = [self.image, self.text]
        if family == "sgraf":
            self.parts.append(Similarity(kind).eval())
        for part in self.parts:
            for name, value in part.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    value.uniform_(0.5, 1.5)

    def save(self, path: Path, **changes: Any) -> Path:
        """Write the file as the peer's train.py does; VSE+2AD saves one state dict, and its options as `args`."""
        options = argparse.Namespace(**{**OPTIONS.get(self.family, {}), **changes})
        states = [part.state_dict() for part in self.parts]
        if self.family == "vse-2ad":
            named = [(f"{part}.{name}", value) for part, held in zip(("img_enc", "txt_enc"), states, strict=True)
                     for name, value in held.items()]  # fmt: skip
            torch.save({"model": dict(named), "rsum": 400.0, "args": options}, path)
        else:
            torch.save({"epoch": 3, "model": states, "best_rsum": 412.34, "opt": options, "Eiters": 9}, path)
        return path

    @torch.no_grad()
    def scores(self, images: Tensor, captions: list[Tensor]) -> Tensor:
        """Of images by captions given as indices."""
        regions = torch.stack([self.image(image) for image in images])
        words = [self.text(caption) for caption in captions]
        if self.family == "sgraf":
            return self.parts[2](regions, words)
        if self.family in ("scan", "bfan"):
            scan = ScanSettings(kind="scan", direction="i2t", pooling="lse", sharpness=4.0, lse_sharpness=5.0)
            own = scan if self.family == "scan" else BfanSettings(kind="bfan", focal="prob", sharpness=20.0)
            return literal_scorers.scores(own, list(regions), words)
        return regions @ torch.stack(words).T
