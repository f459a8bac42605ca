"""MultiVector (ColBERT): one vector per token, compared by the sum of the best matches."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.rankers.base import InMemory, load_tokenizer, loading, shared_options, window_of
from pyterrier_debias.rankers.dual_encoder import TwoTowers, counts_tokens
from pyterrier_debias.rankers.terms import Terms, paired
from pyterrier_debias.training.seeds import drawn_from

if TYPE_CHECKING:
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Transformer

    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: The tokens that mark queries and documents in ColBERT's own code, versions 0.2 and later.
_MARKERS = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}

#: How many numbers a comparison holds at a time: padded vectors of both sides and their similarities (64 MB in float32).
_COMPARED = 16_000_000


def _brings_projection(model: str) -> bool:
    """Whether a checkpoint was made for one vector per token, so that nothing in it is drawn at random."""
    from sentence_transformers.util import load_file_path
    from transformers import AutoConfig

    modules = load_file_path(model, "modules.json")
    if modules is None:
        return "HF_ColBERT" in (AutoConfig.from_pretrained(model, trust_remote_code=False).architectures or [])
    kinds = [part["type"].rpartition(".")[2] for part in json.loads(Path(modules).read_text(encoding="utf-8"))]
    return "Dense" in kinds or "MultiVectorMask" in kinds


def _dnn(checkpoint: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The weights of a ``.dnn`` file and its training arguments; nothing but tensors and numbers is unpickled."""
    import pickle

    import torch

    path = Path(checkpoint).expanduser()
    if not path.is_file():
        raise InputError(f"MultiVector.from_dnn: there is no file {str(checkpoint)!r}; give a ColBERT checkpoint's .dnn file")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(
            f"MultiVector.from_dnn: {path} cannot be loaded without running pickled code, or is damaged "
            f"({type(error).__name__}); if you trust it, load it yourself, and save its model_state_dict and plain arguments"
        ) from error
    state = found.get("model_state_dict") if isinstance(found, dict) else None
    if not isinstance(state, dict) or "linear.weight" not in {key.removeprefix("module.") for key in state}:
        raise InputError(
            f"MultiVector.from_dnn: {path} holds no 'model_state_dict' with 'linear.weight', so it is not a ColBERT checkpoint"
        )
    arguments = found.get("arguments")
    weights = {key.removeprefix("module."): value.contiguous() for key, value in state.items()}
    return weights, arguments if isinstance(arguments, dict) else {}


def _check_dnn(weights: dict[str, torch.Tensor], encoder: Any, tokenizer: Any, checkpoint: Any, base: Any) -> None:
    """Refuse incomplete weights (the rest would be drawn at random without notice), and a tokeniser without marker tokens."""
    own = encoder.state_dict()
    wanted = {f"bert.{name}": own[name].shape for name, _ in encoder.named_parameters() if not name.startswith("pooler.")}
    odd = [name for name, shape in wanted.items() if name not in weights or weights[name].shape != shape]
    if odd:
        raise InputError(
            f"MultiVector.from_dnn: {checkpoint} lacks {len(odd)} weights of base={str(base)!r}, or has them in another shape "
            f"({', '.join(odd[:3])}); give the BERT from which it was trained"
        )
    missing = [token for token in _MARKERS.values() if token not in tokenizer.get_vocab()]
    if missing:
        raise InputError(
            f"MultiVector.from_dnn: the tokeniser of base={str(base)!r} has no {' and no '.join(missing)}, which mark queries "
            f"and documents; give the BERT from which the checkpoint was trained"
        )


class MultiVector(TwoTowers):
    r"""Scores a pair by late interaction, :math:`s(q, d) = \sum_i \max_j q_i \cdot d_j` over the vectors of tokens (ColBERT).

    sentence-transformers' ``MultiVectorEncoder`` loads the models: its own folders, Stanford's ``HF_ColBERT`` and PyLate
    checkpoints, with their marker tokens, query expansion and lists of ignored tokens. A plain encoder gets a new, untrained
    projection, which is useful only for training. :meth:`from_dnn` opens a ``.dnn`` file of ColBERT's first versions. Scores are
    those of the library's ``similarity`` (or its mean over query tokens if the checkpoint says so). They do not depend on the
    batch, and each distinct text is encoded once.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over BERT",
    SIGIR 2020.

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.

    When not to use it: to retrieve from a whole collection, which needs an index of token vectors; for models with one vector
    per text (:class:`~pyterrier_debias.BiEncoder`).

    Example:
        >>> from pyterrier_debias import MultiVector
        >>> MultiVector("colbert-ir/colbertv2.0", max_length=180)
        MultiVector('colbert-ir/colbertv2.0', max_length=180)

        In a pipeline: ``bm25 % 100 >> texts >> MultiVector(model)``.

    .. cite.dblp:: journals/corr/abs-2004-12832
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "MultiVector", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> MultiVectorEncoder:
            """The sentence-transformers model."""

    _SOURCE = ("model", "device", "dtype", "seed")

    def __init__(
        self,
        model: str | Path | MultiVector | InMemory,
        *,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        batch_tokens: int | None = None,
        text_field: str = "text",
        fields: Sequence[str] | None = None,
        long: str = "truncate",
        passage_length: int = 150,
        passage_stride: int = 75,
        seed: int = 0,
        training: Training | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            model: A hub name, a folder, another MultiVector (whose weights are copied), or an ``InMemory`` MultiVectorEncoder.
            max_length: Longest document in tokens; None for the checkpoint's own length. Queries keep the checkpoint's length.
                Truncation of documents is logged.
            device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
            dtype: ``'float32'``, ``'tf32'`` (on CUDA), ``'bfloat16'`` or ``'float16'``; vectors are compared in float32.
            batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
            text_field: The column with the document's text.
            fields: Columns to join with a space and read instead of ``text_field``.
            long: How to handle long documents: ``'truncate'``, ``'firstp'`` or ``'maxp'``; see
                :class:`~pyterrier_debias.rankers.base.Ranker`.
            passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
            passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
            seed: Seed of a new projection.
            training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
            verbose: Whether to show progress.
        """
        super().__init__(**shared_options(locals()))
        self.seed = seed

    @classmethod
    def from_dnn(
        cls,
        checkpoint: str | Path,
        *,
        base: str | Path = "bert-base-uncased",
        query_length: int | None = None,
        document_length: int | None = None,
        mask_punctuation: bool | None = None,
        **options: Any,
    ) -> Self:
        """Open a ``.dnn`` file, which versions 0.1 and 0.2 of ColBERT's code write and pyterrier_colbert reads.

        Queries are ``[CLS] [unused0] text [SEP]``, padded with ``[MASK]`` to their length; no token attends to the padding, but
        its vectors count in the score. Documents are ``[CLS] [unused1] text [SEP]``; with ``mask_punctuation``, the vectors of
        punctuation are left out. Vectors have length 1. A checkpoint that was trained with ``similarity='l2'`` is also scored by
        inner product, which orders documents in the same way. The file is loaded with ``weights_only``: no code in it runs.

        Args:
            checkpoint: The file.
            base: Folder or hub name of the BERT from which it was trained, for its configuration and tokeniser.
            query_length: Tokens of a query; None for the file's value.
            document_length: Longest document in tokens; None for the file's value.
            mask_punctuation: Whether to ignore the punctuation of documents; None for the file's value.
            options: Further options of the class, such as ``device``.

        Returns:
            The ranker, with its weights loaded. :meth:`save` writes it to a folder that opens without ``base``.

        Raises:
            InputError: If there is no such file, it is not a ColBERT checkpoint or needs unpickling, weights are missing, the
                tokeniser has no marker tokens, or a length is neither given nor in the file.

        Example:
            ``MultiVector.from_dnn('colbert-200000.dnn', mask_punctuation=True)``

        Source: github.com/stanford-futuredata/ColBERT at version 0.2: modeling/colbert.py, modeling/tokenization, utils/utils.py,
        utils/parser.py.
        """
        from safetensors.torch import save_file
        from sentence_transformers import MultiVectorEncoder
        from transformers import AutoConfig, AutoModel

        weights, told = _dnn(checkpoint)
        asked = {"query_maxlen": query_length, "doc_maxlen": document_length, "mask_punctuation": mask_punctuation}
        metadata: dict[str, Any] = {**_MARKERS, "attend_to_mask_tokens": False}
        for name, (key, value) in zip(("query_length", "document_length", "mask_punctuation"), asked.items()):
            metadata[key] = told.get(key) if value is None else value
            if metadata[key] is None:
                raise InputError(f"MultiVector.from_dnn: {checkpoint} does not record its {key}; give the {name} of its training")
            if name != "mask_punctuation":
                # Two special tokens, the marker and a word.
                check_number("MultiVector.from_dnn", name, metadata[key], least=4, whole=True)
        with tempfile.TemporaryDirectory() as scratch:
            with loading(base, cls.__name__) as where:
                config = AutoConfig.from_pretrained(where, trust_remote_code=False)
                tokenizer = load_tokenizer(where, cls.__name__)
                _check_dnn(weights, AutoModel.from_config(config), tokenizer, checkpoint, base)
                config.architectures = ["HF_ColBERT"]
                config.save_pretrained(scratch)
                tokenizer.save_pretrained(scratch)
                save_file(weights, Path(scratch) / "model.safetensors", metadata={"format": "pt"})
                (Path(scratch) / "artifact.metadata").write_text(json.dumps(metadata), encoding="utf-8")
            with loading(scratch, cls.__name__) as where:
                module = MultiVectorEncoder(where, device="cpu", trust_remote_code=False)
        return cls(InMemory(module, module.tokenizer), **options)

    def read(self, model: str) -> tuple[Any, Any]:
        """Load a multi-vector model; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        from sentence_transformers import MultiVectorEncoder

        if not _brings_projection(model):
            logger.warning(
                "MultiVector: model %s has no projection of its tokens; a new one (seed %d) scores at random until it is trained",
                model,
                self.seed,
            )
        with drawn_from(self.seed):
            module = MultiVectorEncoder(
                model, device="cpu", model_kwargs={"dtype": self.torch_dtype}, trust_remote_code=False
            )
        return module, module.tokenizer

    def task_window(self, task: str) -> int:
        """The longest query or document in tokens: the checkpoint's own length, or ``max_length`` for documents."""
        module = self.module
        if task == "document" or not counts_tokens(module):
            return super().task_window(task)
        tokens = cast("Transformer", module[0])
        own, expansion = tokens.query_length, tokens.query_expansion
        if expansion is not None and expansion["strategy"] == "fixed":
            own = expansion["length"]
        return window_of(module.tokenizer, module.config, own, self)

    def represent(self, features: dict[str, torch.Tensor]) -> Terms:
        """The vectors of each text's tokens, float32, and which of them count."""
        return Terms(features["token_embeddings"].float(), features["attention_mask"].bool())

    def gather(self, n: int, found: Iterator[tuple[np.ndarray, Terms]]) -> Terms:
        """The vectors of all queries, in their order."""
        return Terms.joined(found)

    def compare(self, queries: Terms, query_rows: np.ndarray, docs: Terms, doc_rows: np.ndarray) -> torch.Tensor:
        """The library's own comparison of pairs, in float32."""
        import torch

        def scores(asked: Terms, given: Terms) -> torch.Tensor:
            return self.module.similarity_pairwise(
                asked.vectors, given.vectors, a_mask=asked.mask, b_mask=given.mask, chunk_elements=_COMPARED
            )

        with torch.inference_mode():
            return torch.cat([scores(*pair) for pair in paired(queries, query_rows, docs, doc_rows, _COMPARED)])

    def similarity_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The library's comparison of rows, under autograd."""
        return self.module.similarity_pairwise(
            queries["token_embeddings"].float(),
            docs["token_embeddings"].float(),
            a_mask=queries["attention_mask"].bool(),
            b_mask=docs["attention_mask"].bool(),
        )

    def matrix_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The library's comparison of all queries with all documents, under autograd."""
        return self.module.similarity(
            queries["token_embeddings"].float(),
            docs["token_embeddings"].float(),
            a_mask=queries["attention_mask"].bool(),
            b_mask=docs["attention_mask"].bool(),
        )
