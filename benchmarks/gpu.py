"""A GPU put to the test, in blocks of which each is useful alone: `python benchmarks/gpu.py`, at most 90 minutes.

Each block runs in a process of its own under a time limit; one that fails or takes too long leaves the others alone.
All that they print goes into one JSON file (`--output`, gpu.json); docs/gpu.md says how to send it in. Without a GPU,
blocks that need it say so; `--device cpu --small` runs the others on the CPU, to see that they run: their figures say
nothing. `--hour` runs as many blocks as end within 50 minutes, in this order, and writes a page, gpu.md, too.

steps       five recipes in fp32, tf32 and bf16: time, launches and memory of a step, beside the plan's
recomputation  the same of a step that computes activations again or embeds a batch in parts
convolutions  those of 32 groups: time, launches and rates by number format and order of channels
layouts     a convolution backbone: channels last, cuDNN's choice of kernels, compiled
feeding     the share of the time for which steps keep the card busy, when 2, 8 and 16 threads decode pictures
packing     steps a second of 1 to 8 trials that share the card
graphs      objectives as CUDA graphs beside the same kernels, launched one by one
errors      a lack of memory in a convolution, a GRU and cuBLAS's start: the class that each gets
tests       the tests that are skipped without a GPU
recipes     20 steps of each small recipe: first and last loss beside the CPU's, and how often a step waits for the GPU
recurrent   a GRU under bfloat16: the format of its states, and its gradient beside float32's
repeat      two equal trainings: how far their weights are apart, which on a GPU need not be 0
resume      a training that was cut off in mid-epoch beside two that were not
failures    a trial beyond its share and a GPU that fails for good, beside two trials that must not notice
replicas    two replicas over gloo on one GPU beside one process
estimate    the estimate of `goalgrid plan --device` beside the real peak of the same steps
objectives  as `objectives.py`, and what they take beyond their inputs
step        the trainer's step beside a step written for speed: fused Adam, clipping, batches pinned and read ahead
evaluation  as `evaluation.py`, both tile sizes
memory      the probe's prediction for one trial, from three steps on the longest captions, beside a whole epoch's peak
tf32        a product and a GRU with TF32 off and on
profile     the operations of the trainer's step that take most time
flickr8k    with `--root DIR`: a small grid on its features, and the hours that `plan --device` says before

Times are between CUDA events, medians, after everything before has ended. The step: VSE++'s heads, a GRU of 1,024 units
and a linear map on 2,048 values of an image, batches of 128.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import torch

from benchmarks.gpu_blocks import agreement, commands, first_hour, peaks, speed
from benchmarks.gpu_blocks.sample import SMALL, WHOLE, one_of
from goalgrid.results.records.provenance import environment


@dataclass(frozen=True)
class Block:
    """A part of the benchmark.

    Args:
        rows: measures, by the device and the sizes.
        seconds: its time limit.
        needs_gpu: whether it says nothing on a CPU.
        needs_root: whether it reads Flickr8k.
    """

    rows: Callable[[str, dict[str, Any]], Iterable[str]]
    seconds: int
    needs_gpu: bool = False
    needs_root: bool = False


BLOCKS = {
    "steps": Block(
        lambda device, chosen: first_hour.steps_rows(device, chosen["steps"], 3, small=chosen["small"]),
        600,
    ),
    "recomputation": Block(lambda device, chosen: first_hour.recomputation_rows(device, 3, small=chosen["small"]), 300),
    "convolutions": Block(
        lambda device, chosen: first_hour.convolutions_rows(device, chosen["rounds"], small=chosen["small"]), 120
    ),
    "layouts": Block(
        lambda device, chosen: first_hour.layouts_rows(device, chosen["steps"], 3, small=chosen["small"]),
        480,
    ),
    "feeding": Block(
        lambda device, chosen: first_hour.feeding_rows(device, 10 * chosen["steps"], small=chosen["small"]), 480
    ),
    "packing": Block(lambda device, chosen: first_hour.packing_rows(device, small=chosen["small"]), 240),
    "graphs": Block(lambda device, chosen: speed.graph_rows(128, chosen["rounds"]), 120, needs_gpu=True),
    "errors": Block(lambda device, chosen: first_hour.errors_rows(device), 180),
    "tests": Block(lambda device, chosen: agreement.rows_of_tests(), 600, needs_gpu=True),
    "recipes": Block(lambda device, chosen: agreement.recipe_rows(device, chosen["steps"]), 300),
    "recurrent": Block(lambda device, chosen: agreement.recurrent_rows(device, chosen["size"]), 60),
    "repeat": Block(lambda device, chosen: agreement.repeat_rows(*one_of(chosen["size"], device)), 120),
    "resume": Block(lambda device, chosen: agreement.resume_rows(*one_of(chosen["size"], device)), 180),
    "failures": Block(lambda device, chosen: commands.failure_rows(device), 300),
    "replicas": Block(lambda device, chosen: agreement.replica_rows(device), 180),
    "estimate": Block(lambda device, chosen: peaks.estimate_rows(chosen["size"]), 120, needs_gpu=True),
    "objectives": Block(
        lambda device, chosen: [
            row for batch in chosen["batches"] for row in speed.objective_rows(batch, device, chosen["rounds"])
        ],
        300,
    ),
    "step": Block(
        lambda device, chosen: speed.step_rows(chosen["size"], device, chosen["steps"], chosen["rounds"]), 180
    ),
    "evaluation": Block(lambda device, chosen: speed.evaluation_rows(chosen["images"], device, chosen["rounds"]), 120),
    "memory": Block(lambda device, chosen: peaks.memory_rows(chosen["size"], device), 180),
    "tf32": Block(lambda device, chosen: speed.tf32_rows(chosen["rounds"]), 60, needs_gpu=True),
    "profile": Block(lambda device, chosen: speed.profile_rows(chosen["size"], device, chosen["steps"]), 120),
    "flickr8k": Block(
        lambda device, chosen: commands.grid_rows(chosen["root"], device, small=chosen["small"]),
        600,
        needs_root=True,
    ),
}


HOUR = 3000.0
"""Seconds for the blocks of `--hour`."""


def apart(name: str, device: str, root: Path | None, *, small: bool, seconds: float) -> dict[str, Any]:
    """Run a block in a process of its own; how it ended, its rows and all that it printed."""
    block = BLOCKS[name]
    limit = min(block.seconds, seconds)
    if limit <= 0:
        return {"state": "no time left", "seconds": 0.0, "rows": [], "said": ""}
    missing = not torch.cuda.is_available()
    if missing and (block.needs_gpu or device == "cuda"):
        return {"state": "needs a GPU", "seconds": 0.0, "rows": [], "said": ""}
    if block.needs_root and root is None:
        return {"state": "needs --root", "seconds": 0.0, "rows": [], "said": ""}
    command = [sys.executable, __file__, "--block", name, "--device", device, *(["--small"] if small else [])]
    command += ["--root", str(root)] if root else []
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit)
        state = "broke off" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also what the block has started
        out, err = process.communicate()
        state = f"took more than {limit:.0f} s"
    said = out + err[-4000:]
    rows = [line for line in said.splitlines() if line.startswith("| ")]
    return {"state": state, "seconds": time.monotonic() - began, "rows": rows, "said": said}


def page(about: dict[str, Any], blocks: dict[str, dict[str, Any]]) -> str:
    """All rows and how each block ended, in Markdown."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [f"# {about['device']}", "", f"{versions}, Python {about['python']}, {about['platform']}"]
    for name, block in blocks.items():
        lines += ["", f"## {name}: {block['state']}, {block['seconds']:.0f} s", ""]
        printed = ["```", block["said"][-1500:].strip(), "```"] if block["said"] else []
        lines += [measuring.HEADER, *block["rows"]] if block["rows"] else printed
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run blocks, print their rows, and write all to one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=list(BLOCKS), default=list(BLOCKS), metavar="BLOCK")
    parser.add_argument("--root", type=Path, help="of Flickr8k with features, as docs/flickr8k.md says")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"), help="the file to send in")
    parser.add_argument("--hour", action="store_true", help="end after 50 minutes, and write a page")
    parser.add_argument("--block", choices=list(BLOCKS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.block:
        chosen = {**(SMALL if given.small else WHOLE), "root": given.root, "small": given.small}
        measuring.show(BLOCKS[given.block].rows(given.device, chosen))
        return 0
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    measuring.begin("torch", note=gpu)
    found = dict[str, dict[str, Any]]()
    until = time.monotonic() + (HOUR if given.hour else float("inf"))
    for name in given.only:
        found[name] = apart(name, given.device, given.root, small=given.small, seconds=until - time.monotonic())
        measuring.show(found[name]["rows"])
        print(f"{name}: {found[name]['state']}, {found[name]['seconds']:.0f} s", file=sys.stderr, flush=True)
        about = environment("cuda" if gpu else "cpu", gpu, 1)
        given.output.write_text(json.dumps({"environment": about, "blocks": found}, indent=1), encoding="utf-8")
        if given.hour:
            given.output.with_suffix(".md").write_text(page(about, found), encoding="utf-8")
    ends = ("done", "needs a GPU", "needs --root", "no time left")
    return int(any(block["state"] not in ends for block in found.values()))


if __name__ == "__main__":
    sys.exit(main())
