"""KernelWhiteningReranker: trains a ranker on isotropic features, so that no direction of the training data prevails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.linguistic.formulas.kernel_whitening import KERNELS
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.bi_encoder import BiEncoder
from pyterrier_debias.rankers.cross_encoder import JOINT, CrossEncoder
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    from pyterrier_debias.linguistic.training.kernel_whitening_method import Layers, Pairs
    from pyterrier_debias.training.groups import Groups
    from pyterrier_debias.training.method import Method


class KernelWhiteningReranker(TrainedRanker):
    r"""Trains a ranker on whitened features, whose covariance is the identity (Kernel-Whitening).

    Sentence vectors lie close to a few directions, along which a ranker also learns features that go with relevance in the
    training data only. Here, the vectors h are mapped to the features of a kernel, and these are whitened:

    .. math:: \varphi(h) = k(h, L)\, k(L, L)^{-1/2}, \qquad z = (\varphi(h) - \mu)\, \Sigma^{-1/2},

    with landmarks L among the vectors of the training data (Nystroem), and :math:`\mu`, :math:`\Sigma` the mean and covariance of
    :math:`\varphi` over a sample of training pairs. A cross-encoder's h is the state of the first token, or with ``head='mean'``
    the mean over all tokens; a bi-encoder's h are its vectors. A trained linear layer maps z to the score, or to the vector
    that is compared. At first, it reproduces the given ranker's scores or vectors as closely as the features allow.

    The whitening is computed before the first batch and again after every ``refresh`` batches; the linear layer is then fitted
    to its output from before. The whitening is part of the network: a score depends only on its own pair, never on the batch, and
    the fitted ranker (``stage.relevance``) reranks, retrieves and is saved as an ordinary model folder of its class.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Gao, Dou, Zhang and Huang, "Kernel-Whitening: Overcome Dataset Bias with Isotropic Sentence Embedding", EMNLP 2022,
    after its abstract; the choice of landmarks, the bandwidth, and when the whitening is computed are our own reading. The
    authors' released code uses such features differently: it weights training examples so that covariances vanish.

    Args:
        ranker: A ``CrossEncoder`` or ``BiEncoder``; a name or folder is loaded as a ``CrossEncoder``. It is copied.
        landmarks: Number of landmarks, which is also the number of features. Like ``kernel``, it cannot change after the first
            ``fit``.
        kernel: ``'rbf'``: :math:`e^{-\gamma \lVert h - l \rVert^2}` of vectors scaled to unit length. ``'cosine'``: their cosine,
            as in the released code, which makes the map linear.
        gamma: gamma of ``'rbf'``. With 1, the kernel is between .02 and 1, so that features do not vanish as the network changes.
        floor: Directions in which the variance of the features is below this share of the largest are left out, since whitening
            would enlarge their noise.
        sample: Number of training pairs over which the whitening is computed.
        refresh: After how many batches the whitening is computed again; 1 means every step, and encodes the sample each time.
        training: How ``fit`` trains, with any loss; None for the ranker's own ``training``.

    Raises:
        InputError: For options that are unknown or out of range, or a ranker of another kind; when scoring before ``fit``.

    When not to use it: on a handful of training queries, whose covariance says little; to keep a good ranker's head, which is
    replaced; if documents have an encoder of their own (ADORE), or if the checkpoint is a published one with a form of its own.

    Example:
        >>> KernelWhiteningReranker("distilbert-base-uncased", landmarks=32)
        KernelWhiteningReranker('distilbert-base-uncased', landmarks=32)

        In a pipeline: ``(bm25 >> AddJudged(qrels) >> texts >> KernelWhiteningReranker(ranker)).fit(topics, qrels)``.

    .. cite.dblp:: journals/corr/abs-2210-07547
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "KernelWhitening", "help_url": None}

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        landmarks: int = 64,
        kernel: str = "rbf",
        gamma: float = 1.0,
        floor: float = 1e-3,
        sample: int = 512,
        refresh: int = 100,
        training: Training | None = None,
    ):
        super().__init__()
        self.ranker = ranker
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma
        self.floor = floor
        self.sample = sample
        self.refresh = refresh
        self.training = training

    def check_options(self) -> None:
        """Check the options, before anything is loaded.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """
        name, base = type(self).__name__, self.checked_base()
        if not isinstance(base, (BiEncoder, CrossEncoder)):
            raise InputError(
                f"{name}: ranker is {kind_of(base)}; give a CrossEncoder or a BiEncoder, whose vectors can be whitened"
            )
        if isinstance(base, BiEncoder) and (base.published is not None or base.documents_by is not None):
            raise InputError(
                f"{name}: the BiEncoder is a published one with its own architecture, or has documents_by=; give one that "
                f"encodes queries and documents itself"
            )
        if isinstance(base, CrossEncoder) and base.head in JOINT:
            raise InputError(f"{name}: head={base.head!r} reads several passages together; give one with head='mean' or 'cls'")
        check_choice(name, "kernel", self.kernel, KERNELS)
        check_number(name, "landmarks", self.landmarks, least=1, whole=True)
        check_number(name, "sample", self.sample, least=2, whole=True)
        check_number(name, "refresh", self.refresh, least=1, whole=True)
        check_number(name, "floor", self.floor, least=0, most=1)
        check_number(name, "gamma", self.gamma, above=0)

    def make_method(self, ranker: Any, training: Training, groups: Groups, prepared: None) -> Method:
        """The ranker with its whitening; see the class."""
        from pyterrier_debias.linguistic.training.kernel_whitening_method import KernelWhitened, scores_of, seen
        from pyterrier_debias.training.method import ranking_of

        pairs = self._pairs(ranker, groups, training.seed)
        # The outputs that a new linear layer should have: the ranker's own scores or vectors.
        start = None if self.fitted or isinstance(ranker, BiEncoder) else scores_of(ranker, pairs)[:, None]
        layers = self._layers(ranker)
        if not self.fitted and isinstance(ranker, BiEncoder):
            start, _ = seen(ranker, pairs, layers.reads, layers.reads)
        return KernelWhitened(
            ranking_of(ranker, training, type(self).__name__),
            layers,
            pairs,
            kernel=self.kernel,
            gamma=self.gamma,
            floor=self.floor,
            refresh=self.refresh,
            seed=training.seed,
            start=start,
        )

    def _pairs(self, ranker: Any, groups: Groups, seed: int) -> Pairs:
        """Training pairs drawn with the seed, in the order of the rows."""
        from pyterrier_debias.linguistic.training.kernel_whitening_method import Pairs

        rows = np.concatenate([rows for group in groups.groups for rows in (group.positives, group.pool)])
        chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[: self.sample])
        frame = groups.rows.iloc[rows[chosen]]
        return Pairs(frame["query"].tolist(), [ranker.training_text(text) for text in ranker.documents(frame)])

    def _layers(self, ranker: Any) -> Layers:
        """The layers of the whitening, added by the first fit: after a bi-encoder's vectors, or in a cross-encoder's head."""
        from pyterrier_debias.linguistic.training.kernel_whitening_method import Layers
        from pyterrier_debias.rankers import whitening

        if isinstance(ranker, BiEncoder):
            module = ranker.module
            if not self.fitted:
                size = cast(int, module.get_embedding_dimension())
                for part in whitening.modules(size, self.landmarks, self.kernel, size):
                    module.append(part.to(ranker.torch_device))
            reads, inner, outer, head = cast(list[Any], list(module)[-4:])
            found, between = Layers(reads, inner.linear, outer.linear, head.linear), inner.activation_function
        else:
            pooled = ranker.pooled()
            if not self.fitted:
                pooled.whiten(self.landmarks, self.kernel)
            reads, first, between, second, head = pooled.classifier
            found = Layers(reads, first, second, head)
        for option, value in {"landmarks": found.first.out_features, "kernel": whitening.kernel_with(between)}.items():
            if getattr(self, option) != value:
                raise InputError(
                    f"KernelWhiteningReranker: {option}={getattr(self, option)!r}, but the stage was fitted with "
                    f"{option}={value!r}; keep that value, or fit a new KernelWhiteningReranker"
                )
        for layer in (found.first, found.second):
            whitening.freeze(layer)
        return found

    def saved_options(self) -> dict[str, Any]:
        """All options except the ranker and ``training``."""
        names = ("landmarks", "kernel", "gamma", "floor", "sample", "refresh")
        return {name: getattr(self, name) for name in names}
