"""The method that trains with kernel whitening. Imported only when training begins, since it needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.linguistic.formulas.kernel_whitening import as_layers, unit_length
from pyterrier_debias.training.method import Around, Ranking
from pyterrier_debias.training.precision import tf32

#: Pairs of the sample that are encoded at a time.
_AT_A_TIME = 32

#: White features have deviation 1 in each direction. Where it is below this, the direction was left out, and has only rounding.
_LEFT_OUT = 0.1


class Layers(NamedTuple):
    """The modules of a ranker's network that make up its whitening.

    Attributes:
        reads: The module whose input is whitened.
        first: The linear layer of the kernel.
        second: The linear layer after it.
        head: The linear layer that maps the whitened features to a score, or to a bi-encoder's vector.
    """

    reads: torch.nn.Module
    first: torch.nn.Linear
    second: torch.nn.Linear
    head: torch.nn.Linear


class Pairs(NamedTuple):
    """A sample of training pairs.

    Attributes:
        queries: n queries.
        docs: n documents.
    """

    queries: list[str]
    docs: list[str]


def vector(value: Any) -> torch.Tensor:
    """The vectors that a module takes or gives; modules of sentence-transformers pass them in a dictionary."""
    return value if isinstance(value, torch.Tensor) else value["sentence_embedding"]


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute in float32 while this context lasts, whatever the precision of the training."""
    with torch.autocast(device.type, enabled=False), tf32(False):
        yield


@contextmanager
def in_full_precision(first: torch.nn.Module, last: torch.nn.Module) -> Iterator[None]:
    """While this context lasts, a network computes in float32 from the input of module ``first`` to the output of ``last``."""
    with ExitStack() as passing:

        def enter(_: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            vectors = vector(args[0])
            passing.enter_context(full_precision(vectors.device))
            vectors = vectors.float()
            return (vectors if isinstance(args[0], torch.Tensor) else {**args[0], "sentence_embedding": vectors},)

        with ExitStack() as hooks:
            hooks.callback(first.register_forward_pre_hook(enter).remove)
            hooks.callback(last.register_forward_hook(lambda *_: passing.close()).remove)
            yield


def scores_of(ranker: Any, pairs: Pairs) -> torch.Tensor:
    """The scores of pairs as computed in training, but without dropout and in float32: shape [n]."""
    network = ranker.module
    was = network.training
    network.eval()
    found = []
    try:
        with torch.no_grad(), full_precision(ranker.torch_device):
            for start in range(0, len(pairs.queries), _AT_A_TIME):
                part = slice(start, start + _AT_A_TIME)
                tensors = ranker.tokenise(pairs.queries[part], pairs.docs[part])
                found.append(ranker.forward(**{name: value.to(ranker.torch_device) for name, value in tensors.items()}))
    finally:
        network.train(was)
    return torch.cat(found)


def seen(ranker: Any, pairs: Pairs, reads: torch.nn.Module, gives: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """The input of one module of a ranker, and the output of another, when it scores pairs.

    Args:
        ranker: The ranker.
        pairs: n pairs.
        reads: The module whose input vectors are wanted.
        gives: The module whose output vectors are wanted.

    Returns:
        Two tensors on the CPU with n rows, or 2 n where queries and documents have separate vectors.
    """
    first: list[torch.Tensor] = []
    last: list[torch.Tensor] = []

    hooks = [
        reads.register_forward_pre_hook(lambda _, args: first.append(vector(args[0]))),
        gives.register_forward_hook(lambda _, args, out: last.append(vector(out))),
    ]
    try:
        scores_of(ranker, pairs)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(first).cpu(), torch.cat(last).cpu()


class KernelWhitened(Around):
    """Trains one ranker with whitened features; the whitening is recomputed every few batches, over a fixed sample of pairs.

    The whitening is stored in layers without gradients: until it is recomputed, the network is trained through it, and its last
    state is used for scoring. It is followed by a trained head; when the whitening changes, the head is fitted to its own output
    from before. All of this is computed in float32, since whitening enlarges small differences until they are as large as others:
    in half precision, most of what the head reads would be rounding.

    Args:
        ranking: The result of the ranker's own ``method``, with any loss.
        layers: The modules of the whitening.
        pairs: The sample.
        kernel: See :func:`~pyterrier_debias.linguistic.formulas.kernel_whitening.kernel_of`.
        gamma: gamma of the kernel.
        floor: See :func:`~pyterrier_debias.linguistic.formulas.kernel_whitening.whitening`.
        refresh: After how many batches the whitening is computed again.
        seed: Seed of the choice of landmarks.
        start: The outputs that a new head should have for the sample, shape [rows, outputs]; None for layers that are in use,
            which stay as they are until training begins.
    """

    batches: torch.Tensor

    def __init__(
        self,
        ranking: Ranking,
        layers: Layers,
        pairs: Pairs,
        *,
        kernel: str,
        gamma: float,
        floor: float,
        refresh: int,
        seed: int,
        start: torch.Tensor | None = None,
    ):
        super().__init__(ranking)
        self.layers = layers
        self.pairs = pairs
        self.kernel, self.gamma, self.floor = kernel, gamma, floor
        self.refresh = refresh
        self.seed = seed
        # Part of the state, so that a resumed run refreshes when an uninterrupted one does.
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))
        self.in_use = start is None
        if start is not None:
            self.whiten(start)

    def record(self) -> dict[str, Any]:
        """The options, and a hash of the sample."""
        options = {"kernel": self.kernel, "gamma": self.gamma, "floor": self.floor, "refresh": self.refresh, "seed": self.seed}
        sample = f"{keyed_hash(0, *self.pairs.queries, *self.pairs.docs):016x}"
        return {**super().record(), "whitening": {**options, "landmarks": self.layers.first.out_features, "sample": sample}}

    def whiten(self, wanted: torch.Tensor | None = None) -> None:
        """Compute the whitening from the sample with the current network, and fit the head to the wanted outputs.

        Args:
            wanted: The outputs that the head should have for the sample, shape [rows, outputs]; None for its present outputs.
        """
        reads, first, second, head = self.layers
        read, gave = seen(self.ranking.ranker, self.pairs, reads, head)
        wanted = (gave if wanted is None else wanted.cpu()).double()
        if not (read.isfinite().all() and wanted.isfinite().all()):
            # The training has diverged. So that it ends as with every other method, the next loss is not a number either.
            with torch.no_grad():
                head.bias.fill_(torch.nan)
            return
        vectors = unit_length(read.double().numpy())
        order = np.random.default_rng(self.seed).permutation(len(vectors))
        # If there are fewer vectors than landmarks, vectors are repeated, which adds no direction.
        landmarks = vectors[np.resize(order, first.out_features)]
        found = as_layers(vectors, landmarks, kernel=self.kernel, gamma=self.gamma, floor=self.floor)
        with torch.no_grad():
            for layer, (weight, bias) in zip((first, second), found):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
            # Not their covariance with the wanted outputs: small features are white only up to rounding, which would add up.
            white = seen(self.ranking.ranker, self.pairs, head, head)[0].double()
            at, mean = white.mean(dim=0), wanted.mean(dim=0)
            fit = torch.linalg.pinv(white - at, atol=_LEFT_OUT * len(white) ** 0.5) @ (wanted - mean)
            head.weight.copy_(fit.T)
            head.bias.copy_(mean - at @ fit)

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The output of the ranker's own method; in training, the whitening is first recomputed if that is due."""
        if self.training:
            batches = self.counted("batches", more=1)
            if batches % self.refresh == 0 and (self.in_use or batches > 0):
                self.whiten()
        with in_full_precision(self.layers.reads, self.layers.head):
            return self.ranking(**batch)
