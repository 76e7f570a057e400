"""Start or join Ray, list its nodes, and run functions there. Import it through `ray_tune`, which prepares Ray."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from goalgrid.grid.errors import HostFault, Incomplete, UserError, in_short
from goalgrid.grid.resources import cpus_here
from goalgrid.runners.launch.driver import Capacity, Spread
from goalgrid.runners.launch.ray_head import answers, check_member, host_and_port_of
from goalgrid.runners.launch.ray_private import PARTS, replace
from goalgrid.runners.trial.stopping import signals_left_to_us

HEAD_SECONDS = {True: 2.0, False: 30.0}
"""Seconds without an answer after which a head counts as gone: one started here (True), or a cluster's (False)."""

ALIVE = 0
"""`GcsNodeInfo.state` of a live node."""

TOKEN = (
    "Copy ~/.ray/auth_token of the head to this host with mode 600, or set RAY_AUTH_TOKEN to the same value on both; "
    "then export RAY_AUTH_MODE=token."
)

LONGEST_SOCKET = 107
"""Maximum length in bytes of a socket path on Linux."""

ROOM = 2**25
"""Disk space in bytes that Ray's sockets and first logs need."""

DEATHS = 3
"""Number of `spread` processes that may die per GPU."""

AT_ONCE = 2
"""Concurrent items per `spread` process: pictures of one are decoded while the GPU computes the other."""


_Services: Any = PARTS.get("ray._private.node.Node", object)


class _KilledServices(_Services):
    """Services of a Ray started here, killed at once: they ignore SIGTERM, and Ray would wait a second for each."""

    def kill_all_processes(self, *arguments: Any, **how: Any) -> None:
        super().kill_all_processes(*arguments, **how | {"allow_graceful": False})


def start(grace: float, **quiet: Any) -> None:
    """Start Ray on this machine; its processes survive a dead head while trials write their checkpoints."""
    seconds = HEAD_SECONDS[True] + grace + 5
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": f"{seconds:.0f}",  # a head that is dead stays dead
    }
    replace("ray._private.node.Node", _KilledServices)
    # the first switch for this process, which has imported Ray
    replace("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
    cpus, gpus = cpus_here(), torch.cuda.device_count()
    check_room(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp")  # as Ray chooses it
    try:
        with signals_left_to_us():
            ray.init("local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, **quiet)
    except Exception as error:  # what Ray raises if a process of its own starts too slowly
        if why := _too_long(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()):
            raise UserError(f"Ray did not start on this machine: {why} --here needs no Ray.") from error
        raise HostFault(
            f"Ray did not start on this machine: {in_short(error)}. Run the same command again; --here needs no Ray."
        ) from error


def check_room(folder: str) -> None:
    """Raise HostFault if Ray cannot write below this folder; Ray itself would try for 40 s and not name the disk."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        raise HostFault(
            f"Ray cannot start on this machine: it needs {ROOM // 2**20} MB in {folder} ({error.strerror}). Make room "
            "there, or use another local folder: RAY_TMPDIR=DIR before the command. --here needs no Ray."
        ) from error


def _too_long(folder: str) -> str:
    """Return why this folder's path is too long for Ray's sockets; empty if it is not."""
    session = f"/ray/session_2000-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    length, most = len(os.fsencode(folder)), LONGEST_SOCKET - len(session)
    if length <= most:
        return ""
    return (
        f"its sockets are below TMPDIR, {folder}, whose path has {length} bytes; at most {most} are possible. Use a "
        "local folder with a shorter path: TMPDIR=/tmp before the command."
    )


def join(address: str, **quiet: Any) -> None:
    """Join the Ray cluster at an address; this host must be one of its nodes."""
    try:
        if loader := PARTS.get("ray._raylet.AuthenticationTokenLoader"):
            loader.instance().has_token()  # else Ray's compiled part would abort this process
        if address != "auto":
            if not answers(*host_and_port_of(address)):  # Ray would try for two minutes
                raise ConnectionError("nothing listens there")
            if client := PARTS.get("ray._raylet.GcsClient"):
                check_member(address, _show_token(address, client))
        ray.init(address, **quiet)
    except ray.exceptions.AuthenticationError as error:
        raise UserError(
            f"RAY_AUTH_MODE=token, but this host has no token of the Ray cluster at {address!r}. {TOKEN}"
        ) from error
    except RuntimeError as error:
        raise UserError(
            f"this process cannot join the Ray cluster at {address!r}: {in_short(error, 500)}. Every node needs the "
            "driver's exact versions of Python and Ray."
        ) from error
    except (ray.exceptions.RayError, OSError) as error:
        raise UserError(
            f"no Ray cluster answers at {address!r}: {in_short(error)}. "
            "Start its head with `ray start --head`, or leave out --address (and RAY_ADDRESS) to run on this "
            "machine. If it is running, it may need a token: export RAY_AUTH_MODE=token."
        ) from error


def _show_token(address: str, client: Any) -> list[str]:
    """Send this process's token to a cluster's head; raise UserError if rejected (`ray.init` would retry for 20 s).

    Returns the addresses of the cluster's live nodes.
    """
    try:
        nodes = client(address=address).get_all_node_info(timeout=10).values()
    except ray.exceptions.RayError as error:
        if "token" not in str(error).lower():
            raise
        raise UserError(f"the Ray cluster at {address} rejects this host's token. {TOKEN}") from error
    return [node.node_manager_address for node in nodes if node.state == ALIVE]


def nodes_with(resources: Collection[str] = ()) -> list[dict[str, Any]]:
    """List the nodes with these resources that answer; Ray itself notices a lost node only after at least 15 s."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].keys() >= set(resources)]
    return [node for node in alive if answers(node["NodeManagerAddress"], node["NodeManagerPort"])]


def capacity_without(nodes: Collection[str]) -> Capacity:
    return Capacity(tuple(node["Resources"] for node in nodes_with(["CPU"]) if node["NodeID"] not in nodes))


def on_node(node: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function or create an actor in a process on this node, with these Ray options."""
    there: Any = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=there, **options)(function).remote(*arguments)


def spread(
    custom: Collection[str], without: Collection[str], begin: Callable[..., Any], *arguments: Any
) -> Spread | None:
    """Start a process per GPU on the nodes with these resources, like `Driver.spread`; None if there is no GPU.

    `without`: nodes to exclude.
    """
    nodes = [node for node in nodes_with(["GPU", *custom]) if node["NodeID"] not in without]
    places = [(node["NodeID"], node["Resources"]) for node in nodes]
    gpus = [
        (node, max(1, int(has.get("CPU", 0) // has["GPU"]))) for node, has in places for _ in range(int(has["GPU"]))
    ]

    def caller(node: str, cpus: int) -> Any:
        return on_node(node, _Caller, begin, *arguments, cpus, num_gpus=1, max_concurrency=AT_ONCE)

    return partial(_spread, gpus, caller) if gpus else None


class _Caller:
    """The process of one GPU, which builds its function once."""

    def __init__(self, begin: Callable[..., Any], *arguments: Any) -> None:
        self.function = begin(*arguments)

    def call(self, item: Any) -> Any:
        return self.function(item)


def _spread(
    gpus: Sequence[tuple[str, int]], caller: Callable[[str, int], Any], items: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield items with their results as they finish, with a process per GPU; items of dead processes are retried.

    Raises UserError if the function does, or if processes died too often.
    """
    waiting, running = list(items)[::-1], dict[Any, tuple[Any, int]]()
    callers, deaths = {place: caller(*gpu) for place, gpu in enumerate(gpus)}, 0
    try:
        while waiting or running:
            for place in [place for place in callers for _ in range(AT_ONCE)] if waiting else ():
                if waiting and sum(at == place for _, at in running.values()) < AT_ONCE:
                    item = waiting.pop()
                    running[callers[place].call.remote(item)] = item, place
            (reply,), _ = ray.wait([*running], num_returns=1)
            item, place = running.pop(reply)
            try:
                yield item, ray.get(reply)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                lost = [reply for reply, (_, at) in running.items() if at == place]
                waiting += [item, *(running.pop(reply)[0] for reply in lost)]
                deaths += 1
                del callers[place]
                if gpus[place][0] in {node["NodeID"] for node in nodes_with()}:
                    callers[place] = caller(*gpus[place])
                if deaths > DEATHS * len(gpus) or not callers:
                    last = str(error).strip().splitlines()[-1]
                    raise Incomplete(
                        f"processes on GPUs died: {last}. Run the same command again to continue."
                    ) from error
    finally:
        for process in callers.values():
            ray.kill(process)
