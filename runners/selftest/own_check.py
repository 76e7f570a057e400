"""Checks of user-defined losses, poolings, encoders and scorers."""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from goalgrid.grid import plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError, said_by
from goalgrid.grid.registration import advice
from goalgrid.grid.settings.image_encoders import OwnImageSettings
from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.grid.settings.scorers import OwnScorerSettings
from goalgrid.grid.settings.text_encoders import OwnTextSettings
from goalgrid.retrieval.encoders.pooling import pooling
from goalgrid.retrieval.own_networks import OwnScorer, image_encoder, text_encoder
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.runners.selftest.objective_check import OF_OBJECTIVES, SEED, Broken, Remark

DIM, OF_SETS = 12, 6
"""Dimensions of the joint space, and of the vectors in sets."""
IMAGES: dict[str, tuple[int, ...]] = {"pictures": (3, 64, 64), "features": (48,), "regions": (6, 48)}
"""Shapes of the test images, by the input type of an encoder."""
VOCABULARY = 40
LENGTHS = (9, 5, 2, 1)
"""Numbers of words of the test captions."""
MEMBERS, REGIONS, WORDS = (5, 3, 2, 1), (5, 3, 5, 1), (4, 1, 2)
"""Numbers of vectors in the test sets, images and captions."""
ALIKE = 1e-4
"""Tolerance relative to the largest value; float32 sums may be computed in another order."""

Inputs = tuple[Tensor, ...]
Call = Callable[..., Tensor]


@dataclass(frozen=True)
class Part:
    """A user-defined pooling, encoder or scorer under test.

    Args:
        make: builds it with default parameters.
        read: test input.
        again: yields equivalent computations of its output, with a description of what differs.
        of_sets: whether it reads sets of vectors, for which gradients are checked.
        call: computes its output for an input.
    """

    make: Callable[[], Any]
    read: Inputs
    again: Callable[[Call, Inputs], Iterator[tuple[str, Tensor]]]
    of_sets: bool = True
    call: Call = lambda part, *read: part(*read)


@dataclass(frozen=True)
class Verdict:
    """The result of one check of a user-defined component.

    Args:
        check: name of the check, e.g. `gradient`.
        holds: whether it passed.
        text: the measurement, or what is wrong.
        remark: whether the text of a passed check contains a remark for the user.
    """

    check: str
    holds: bool
    text: str
    remark: bool = False


def verdicts(name: str, known: Catalog) -> Iterator[Verdict]:
    """Run all checks of the user-defined component with this name, and yield each result."""
    if part := _part(name, known):
        checks = {check: partial(function, part) for check, function in OF_PARTS.items()}
    else:
        checks = {check: partial(function, name, known) for check, function in OF_OBJECTIVES.items()}
    for check, function in checks.items():
        try:
            yield Verdict(check, True, function())
        except Remark as remark:
            yield Verdict(check, True, str(remark), remark=True)
        except (Broken, UserError) as error:
            yield Verdict(check, False, str(error))
        except BaseException as error:
            if plugins.is_interrupt(error):
                raise
            frame = traceback.extract_tb(error.__traceback__)[-1]
            given = f", given {' and '.join(str(tuple(values.shape)) for values in part.read)}" if part else ""
            place = plugins.line_of(error) or f"{frame.filename}, line {frame.lineno}"
            yield Verdict(check, False, f"{type(error).__name__}: {said_by(error)} ({place}){given}{advice(error)}")


def shape(part: Part) -> str:
    """Check for finite vectors per input, or finite scores per pair. Wrong shapes are reported by the call itself."""
    output = part.call(_made(part), *part.read)
    if not output.isfinite().all():
        raise Broken("a value is not finite")
    return f"{tuple(output.shape)}, all finite"


def gradient(part: Part) -> str:
    """Check that gradients of sets equal finite differences in float64, and that gradients of weights are finite."""
    module, call, read = *_evaluating(part), part.read
    if part.of_sets:
        if isinstance(module, nn.Module):
            module.double()
        read = tuple(x.double().requires_grad_() if x.is_floating_point() else x for x in read)
        if not torch.autograd.gradcheck(call, read, raise_exception=False):
            raise Broken("it differs from the derivative of the returned value (a detach?)")
    output = call(*read)
    output = output if part.of_sets else normalize(output.float(), dim=-1)
    (output * torch.randn(output.shape, generator=_random(), dtype=output.dtype)).sum().backward()
    named = module.named_parameters() if isinstance(module, nn.Module) else ()
    learning = {name: weight.grad for name, weight in named if weight.requires_grad}
    for name, grad in learning.items():
        if grad is None:
            raise Broken(f"{name} gets no gradient: does forward use it, without a detach?")
        if not grad.isfinite().all():
            raise Broken(f"the gradient of {name} is not finite")
    if not learning and not part.of_sets:
        raise Broken("it has no trainable parameter")
    return "equals finite differences; " * part.of_sets + f"finite for all {len(learning)} parameters"


@torch.no_grad()
def batch(part: Part) -> str:
    """Check that an output in evaluation mode does not depend on other inputs, padding or earlier calls."""
    _, call = _evaluating(part)
    output = call(*part.read)
    for what, other in (("at the second call", call(*part.read)), *part.again(call, part.read)):
        off = float((other - output).abs().max() / output.abs().max())
        if not off <= ALIKE:
            raise Broken(f"{what}, the output of an input changes by {off:.1e} of the largest value")
    return "the output of an input depends neither on other inputs nor on padding"


def half_precision(part: Part) -> str:
    """Check for finite values and gradients with 16-bit vectors, random or all identical."""
    _, call = _evaluating(part)
    one = torch.eye(OF_SETS)[0]  # so that products are exactly 1
    cases: dict[str, Callable[[Tensor], Tensor]] = {
        "random": torch.clone,
        "all in one point": lambda x: one * x.any(-1, keepdim=True),
    }
    for dtype in (torch.bfloat16, torch.float16) if part.of_sets else ():
        for what, values in cases.items():
            read = [values(x).to(dtype).requires_grad_() if x.is_floating_point() else x for x in part.read]
            with torch.autocast("cpu", dtype=dtype):
                output = call(*read)
            (output * torch.linspace(1, 2, output.numel()).view_as(output)).sum().backward()
            if not all(x.isfinite().all() for x in (output, *(x.grad for x in read if x.grad is not None))):
                raise Broken(f"{dtype} vectors, {what}: the value or the gradient is not finite")
    return "finite for bfloat16 and float16" if part.of_sets else "not applicable"


@torch.no_grad()
def weights(part: Part) -> str:
    """Check that a new instance with the weights of a checkpoint returns the same values."""
    first, other = _made(part), _made(part, SEED + 1)
    part.call(first, *part.read)  # in training, so that running statistics are no longer those of the start
    if isinstance(first, nn.Module):
        other.load_state_dict(first.state_dict())
        first.eval(), other.eval()
    if not torch.equal(part.call(first, *part.read), part.call(other, *part.read)):
        raise Broken("a new instance returns other values with the weights of a checkpoint: state outside state_dict")
    return "all state is in state_dict"


CHECKS = (shape, gradient, batch, half_precision, weights)
OF_PARTS: dict[str, Callable[[Part], str]] = {check.__name__.replace("_", " "): check for check in CHECKS}


def _made(part: Part, seed: int = SEED) -> Any:
    torch.manual_seed(seed)
    return part.make()


def _evaluating(part: Part) -> tuple[Any, Call]:
    """Return the component in evaluation mode, and a function that calls it."""
    module = _made(part)
    if isinstance(module, nn.Module):
        module.eval()
    return module, partial(part.call, module)


def _part(name: str, known: Catalog) -> Part | None:
    """Return the pooling, encoder or scorer with this name; None for a loss."""
    content = {"encoder": "own", "name": name}
    if name in known.registered("pooling"):
        values, sizes = _sets(MEMBERS)
        read = values, torch.arange(max(MEMBERS)) < sizes[:, None]
        pooled = known.validated(PoolingSettings, {"pooling": name})
        return Part(lambda: pooling(pooled, OF_SETS), read, _pooled_again)
    if name in known.registered("scorer"):
        scorer = known.validated(OwnScorerSettings, {"kind": "own", "name": name})
        both = *_sets(REGIONS), *_sets(WORDS)
        return Part(lambda: OwnScorer(scorer, max(REGIONS), OF_SETS), both, _scored_again, call=_scores)
    if name in known.registered("text encoder"):
        lengths = torch.tensor(LENGTHS)
        ids = torch.randint(1, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=_random())
        ids *= torch.arange(max(LENGTHS)) < lengths[:, None]
        texts = known.validated(OwnTextSettings, content)
        return Part(lambda: text_encoder(texts, VOCABULARY, DIM, {}), (ids, lengths), _embedded_again, of_sets=False)
    if name in known.registered("image encoder"):
        images = known.validated(OwnImageSettings, content)
        on = images.user_module.on
        shape = len(LENGTHS), *IMAGES[on]
        pixels = torch.randint(0, 256, shape, generator=_random(), dtype=torch.uint8)
        pictures = pixels if on == "pictures" else torch.randn(shape, generator=_random())
        return Part(lambda: image_encoder(images, IMAGES[on], DIM, {}), (pictures,), _embedded_again, of_sets=False)
    return None


def _random() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def _sets(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return random unit vectors for sets of these sizes, zero-padded, and the sizes."""
    counts = torch.tensor(sizes)
    vectors = normalize(torch.randn(len(sizes), max(sizes), OF_SETS, generator=_random()), dim=-1)
    return vectors * (torch.arange(max(sizes)) < counts[:, None])[..., None], counts


def _scores(scorer: OwnScorer, regions: Tensor, counts: Tensor, words: Tensor, lengths: Tensor) -> Tensor:
    return scorer(TokenSets(regions, counts), TokenSets(words, lengths))


def _flipped_and_alone(call: Call, read: Inputs) -> Iterator[tuple[str, Tensor]]:
    yield "in another order of the batch", call(*(part.flip(0) for part in read)).flip(0)
    yield "alone", torch.cat([call(*(part[i : i + 1] for part in read)) for i in range(len(read[0]))])


def _embedded_again(call: Call, read: Inputs) -> Iterator[tuple[str, Tensor]]:
    yield from _flipped_and_alone(call, read)
    if len(read) == 2:
        ids, lengths = read
        yield "with more padding after a caption", call(pad(ids, (0, 3)), lengths)


def _pooled_again(call: Call, read: Inputs) -> Iterator[tuple[str, Tensor]]:
    yield from _flipped_and_alone(call, read)
    values, present = read
    yield "with another value at a padded position", call(values + 7 * ~present[..., None], present)


def _scored_again(call: Call, read: Inputs) -> Iterator[tuple[str, Tensor]]:
    regions, counts, words, lengths = read
    yield "with the images in another order", call(regions.flip(0), counts.flip(0), words, lengths).flip(0)
    yield "with the captions in another order", call(regions, counts, words.flip(0), lengths.flip(0)).flip(1)
    rows = [torch.cat([call(regions[i : i + 1], counts[i : i + 1], words[t : t + 1], lengths[t : t + 1])
                       for t in range(len(words))], dim=1) for i in range(len(regions))]  # fmt: skip
    yield "alone in a batch", torch.cat(rows)
    yield "with more zero padding after an image's vectors", call(pad(regions, (0, 0, 0, 3)), counts, words, lengths)
    yield "with more zero padding after a caption's words", call(regions, counts, pad(words, (0, 0, 0, 3)), lengths)
