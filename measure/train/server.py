"""A parameter server over ``torch.distributed.rpc``: the twin of ``simcore/strategies/parameter_server.py``.

Each server keeps a stretch of the parameters. A worker sends its gradients and gets the parameters back; how far it may
run ahead of the slowest is bounded by ``staleness`` (0: everyone in step; none: never waits).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.futures import Future
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from measure.train.asynchronous import AsynchronousTrainer
from measure.train.job import Job
from measure.train.mesh import Mesh
from measure.world import World
from simcore.scenario.strategy import StrategyTable

LEARNING_RATE = 1e-3
RPC_TIMEOUT_S = 600.0


@dataclass
class _Stretch:
    """One server's stretch of the parameters of one training, and its workers' clocks."""

    parameters: torch.Tensor
    bound: int | None
    version: int = 0
    clocks: dict[int, int] = field(default_factory=dict)
    read_at: dict[int, int] = field(default_factory=dict)
    waiting: list[tuple[int, int, Future[Any]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, worker: int, gradients: torch.Tensor, done: Future[Any]) -> None:
        """Take gradients; answer with the parameters as soon as the worker may go on."""
        with self.lock:
            self.parameters.add_(gradients, alpha=-LEARNING_RATE)
            stale = self.version - self.read_at[worker]
            self.version += 1
            self.clocks[worker] += 1
            self.waiting.append((worker, stale, done))
            self._answer()

    def enter(self, worker: int) -> None:
        """A worker begins, level with the slowest."""
        with self.lock:
            self.clocks[worker] = min(self.clocks.values(), default=0)
            self.read_at[worker] = self.version

    def leave(self, worker: int) -> None:
        """A worker stops: nobody waits for it."""
        with self.lock:
            self.clocks.pop(worker, None)
            self._answer()

    def _answer(self) -> None:
        """Give the parameters, and how stale its gradients were, to each waiting worker that is not too far ahead."""
        slowest = min(self.clocks.values(), default=0)
        still: list[tuple[int, int, Future[Any]]] = []
        for worker, stale, done in self.waiting:
            if self.bound is None or self.clocks.get(worker, slowest) - slowest <= self.bound:
                self.read_at[worker] = self.version
                done.set_result((self.parameters.clone(), stale))
            else:
                still.append((worker, stale, done))
        self.waiting = still


_stretches: dict[str, _Stretch] = {}
"""What this server keeps, by training."""


def _host(training: str, parameters: torch.Tensor, bound: int | None) -> None:
    _stretches[training] = _Stretch(parameters, bound)


def _enter(training: str, worker: int) -> None:
    _stretches[training].enter(worker)


def _leave(training: str, worker: int) -> None:
    _stretches[training].leave(worker)


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def _exchange(training: str, worker: int, gradients: torch.Tensor) -> Future[Any]:
    done: Future[Any] = Future()
    _stretches[training].update(worker, gradients, done)
    return done


def join_rpc(world: World) -> None:
    """Join all ranks of the world in rpc; every rank must call it, once. ``leave_rpc`` ends it."""
    options = rpc.TensorPipeRpcBackendOptions(
        init_method="env://",
        rpc_timeout=RPC_TIMEOUT_S,
        # Plain TCP: shared memory would let the hosts of one machine's network namespaces bypass their links.
        _transports=["uv"] if len(world.hosts) > 1 else None,
        _channels=["basic"] if len(world.hosts) > 1 else None,
    )
    rpc.init_rpc(name_of(world.rank), rank=world.rank, world_size=world.size, rpc_backend_options=options)  # type: ignore[no-untyped-call]


def leave_rpc() -> None:
    """Leave rpc once every rank is done with it."""
    rpc.shutdown()


def name_of(rank: int) -> str:
    """What a rank is called in rpc."""
    return f"rank-{rank}"


class ParameterServerTrainer(AsynchronousTrainer):
    """A worker of the parameter servers, which are the last ranks of the world."""

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh) -> None:
        super().__init__()
        self._job, self._worker, workers = job, mesh.place("replicate"), mesh.size("replicate")
        world = dist.get_world_size()
        self._servers = [name_of(rank) for rank in range(world - strategy.servers, world)]
        self._training = f"{workers} workers"
        flat = parameters_to_vector(job.model.parameters()).detach()
        self._sizes = [part.numel() for part in flat.tensor_split(len(self._servers))]
        if self._worker == 0:
            for server, part in zip(self._servers, torch.split(flat, self._sizes), strict=True):
                rpc.rpc_sync(server, _host, (self._training, part.clone(), strategy.staleness))
        dist.barrier(group=mesh.group("replicate"))

    def enter(self) -> None:
        """Begin to take part."""
        self._call_all(_enter)

    def leave(self) -> None:
        """Take no part for a while."""
        self._call_all(_leave)

    def step(self) -> torch.Tensor:
        """Compute gradients, send them to every server, take the parameters that come back."""
        self._job.model.zero_grad(set_to_none=True)
        loss = self._job.loss(self._job.model)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = torch.split(parameters_to_vector(_gradients(self._job.model)), self._sizes)
        answers = [
            rpc.rpc_async(server, _exchange, (self._training, self._worker, part))
            for server, part in zip(self._servers, gradients, strict=True)
        ]
        stretches, stale = zip(*(answer.wait() for answer in answers), strict=True)
        self.staleness.append(max(stale))
        vector_to_parameters(torch.cat(stretches), self._job.model.parameters())
        return loss.detach()

    def _call_all(self, function: Any) -> None:
        for server in self._servers:
            rpc.rpc_sync(server, function, (self._training, self._worker))


def _gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
