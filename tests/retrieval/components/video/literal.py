"""CE and MMT as their code has them: a pair of experts, a video and a caption at a time. The oracle of our networks."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mish, normalize


def unit(values: Tensor) -> Tensor:
    return values / values.norm()


def net_vlad(pool: Any, tokens: Tensor) -> Tensor:
    """Of one batch: residual after residual; batch norm over all tokens of the batch."""
    batch, count, width = tokens.shape
    products = torch.stack([token @ pool.assign for video in tokens for token in video])
    shares = pool.norm(products).softmax(1).view(batch, count, -1)
    videos = []
    for video, own in zip(tokens, shares, strict=True):
        residuals = [
            unit(sum(own[n, k] * (video[n] - pool.centres[0, :, k]) for n in range(count)))  # type: ignore[arg-type]
            for k in range(pool.clusters)
        ]
        videos.append(unit(torch.stack([residuals[k][d] for d in range(width) for k in range(pool.clusters)])))
    return torch.stack(videos)


def collaborative_gating(network: Any, experts: dict[str, Tensor], there: dict[str, Tensor]) -> Tensor:
    """The loop of CE: all pairs of experts one after another, and each gated vector at once in place of the ungated."""
    names = sorted(experts)
    norms = [nn.BatchNorm1d(norm.num_features) for norm in network.relate.norms]
    for own, norm in zip(norms, network.relate.norms, strict=True):
        own.load_state_dict(norm.state_dict())
        own.weight, own.bias = norm.weight, norm.bias
        own.train(norm.training)
    experts = dict(experts)
    for place, name in enumerate(names):
        others: Tensor = torch.zeros_like(experts[name])
        available = torch.zeros(len(others))
        for other in names:
            values = network.relate.both(torch.cat([experts[name], experts[other]], dim=1))
            for norm, layer in zip(norms, network.relate.layers, strict=True):
                values = layer(mish(norm(values)))
            others = others + values * (there[name] * there[other])[:, None]
            available += there[other]
        others = others / (available + 1e-11)[:, None]
        gate = network.gates[place]
        inner = gate.norm(gate.layer(experts[name])) + gate.norm_of_others(others)
        glu = nn.functional.glu(torch.cat([experts[name], inner], dim=1), 1)
        experts[name] = normalize(glu, dim=1)
    for own, norm in zip(norms, network.relate.norms, strict=True):
        for name, statistic in own.named_buffers():
            getattr(norm, name).copy_(statistic)
    return torch.stack([experts[name] for name in names], dim=1)


def mixture(videos: Tensor, there: Tensor, captions: Tensor, weights: Tensor) -> Tensor:
    """Scores of videos by captions: weights renormalised over the experts that saw something, pair by pair."""
    scores = torch.zeros(len(videos), len(captions), dtype=videos.dtype)
    for v in range(len(videos)):
        for t in range(len(captions)):
            shares = weights[t] * there[v]
            shares = shares / shares.sum()
            scores[v, t] = sum(shares[m] * (captions[t, m] @ videos[v, m]) for m in range(videos.shape[1]))
    return scores


def mmt(network: Any, experts: dict[str, list[tuple[Tensor, Tensor]]], heads: int) -> Tensor:
    """MMT by the layers of BERT in `transformers`, a video at a time and without any padding.

    Args:
        experts: by name, of each video its vectors (n, d) and their times (n), in the order in which they are read.
    """
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    dim = network.norm.normalized_shape[0]
    wide = network.layers[0].wide.out_features
    config = BertConfig(hidden_size=dim, num_attention_heads=heads, intermediate_size=wide, layer_norm_eps=1e-12)
    config._attn_implementation = "eager"
    layers = []
    for layer in network.layers:
        theirs = BertLayer(config).eval()
        attention, output = theirs.attention, theirs.output
        ours = (layer.query, layer.key, layer.value, layer.out, layer.first, layer.wide, layer.narrow, layer.second)
        own = (attention.self.query, attention.self.key, attention.self.value, attention.output.dense)
        own += (attention.output.LayerNorm, theirs.intermediate.dense, output.dense, output.LayerNorm)
        for target, source in zip(own, ours, strict=True):
            target.load_state_dict(copy.deepcopy(source.state_dict()))
        layers.append(theirs)
    found = []
    for video in range(len(next(iter(experts.values())))):
        sequence, places, lost = [network.expert.weight[0] + network.time.weight[0]], {}, {}
        for place, name in enumerate(sorted(experts)):
            vectors, times = experts[name][video]
            kind = network.expert.weight[1 + place]
            if not len(vectors):  # attended to by none; its own output counts
                lost[name] = normalize(network.project[place](torch.zeros(vectors.shape[1])), dim=0) + kind
                lost[name] = lost[name] + network.time.weight[0]
                continue
            places[name] = len(sequence)
            whole = normalize(network.project[place](vectors.amax(0)), dim=0)
            sequence.append(whole + kind + network.time.weight[0])
            for vector, time in zip(vectors, times.tolist(), strict=True):
                second = 1 if time < 0 else min(31, int(np.floor(time + 2)))
                sequence.append(normalize(network.project[place](vector), dim=0) + kind + network.time.weight[second])
        outputs = {}
        for name in sorted(experts):
            own = sequence if name in places else [*sequence, lost[name]]
            states = network.norm(torch.stack(own))[None]
            mask = torch.zeros(1, 1, len(own), len(own))
            mask[..., len(sequence) :] = torch.finfo(torch.float32).min
            for layer in layers:
                states = layer(states, attention_mask=mask)
                states = states[0] if isinstance(states, tuple) else states
            outputs[name] = unit(states[0, places.get(name, len(sequence))])
        found.append(torch.stack([outputs[name] for name in sorted(experts)]))
    return torch.stack(found)


class Ranger:
    """The optimiser of CE for one weight, number by number."""

    def __init__(self, weight: Tensor, lr: float, decay: float) -> None:
        self.weight, self.lr, self.decay = weight, lr, decay
        self.slow, self.first, self.second, self.steps = weight.clone(), weight * 0, weight * 0, 0

    def step(self, gradient: Tensor) -> None:
        self.steps += 1
        t, b1, b2 = self.steps, 0.95, 0.999
        self.second = b2 * self.second + (1 - b2) * gradient**2
        self.first = b1 * self.first + (1 - b1) * gradient
        most = 2 / (1 - b2) - 1
        n = most - 2 * t * b2**t / (1 - b2**t)
        self.weight = self.weight - self.decay * self.lr * self.weight
        if n > 5:
            size = np.sqrt((1 - b2**t) * (n - 4) / (most - 4) * (n - 2) / n * most / (most - 2)) / (1 - b1**t)
            self.weight = self.weight - self.lr * size * self.first / (self.second.sqrt() + 1e-5)
        else:
            self.weight = self.weight - self.lr / (1 - b1**t) * self.first
        if t % 6 == 0:
            self.slow = self.slow + 0.5 * (self.weight - self.slow)
            self.weight = self.slow.clone()
