"""Tiny random models with real tokenizers, written as ordinary model folders, for tests that need no network."""

from __future__ import annotations

import atexit
import json
import shutil
import string
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path

WORDS = (
    "the a of and to in is was for on that with who what where when how why did does city river king queen doctor nurse engine "
    "signal bridge harbour market lives works built found early late north south red blue old new long short answer question "
    "document query passage relevant true false"
).split()

#: Longest input of the models, in tokens: what a passage costs grows with it, and the tests read some ten thousand.
POSITIONS = 64

#: Builder and options to the folder that was built first; later ones are copies of it.
_built: dict[str, Path] = {}


def built_once(builder: Callable[..., Path]) -> Callable[..., Path]:
    """Let a builder write what it wrote before for the same options as copies."""

    @wraps(builder)
    def written(folder: Path | str, **options) -> Path:
        key = f"{builder.__name__}{sorted(options.items())}"
        if key not in _built:
            scratch = Path(tempfile.mkdtemp(prefix="tiny-models-"))
            atexit.register(shutil.rmtree, scratch, ignore_errors=True)
            _built[key] = builder(scratch / "model", **options)
        return Path(shutil.copytree(_built[key], folder, dirs_exist_ok=True))

    return written


def wordpiece_tokenizer(*more: str):
    """A lower-casing WordPiece tokenizer that knows some words (and tokens that are given) and spells all others."""
    from transformers import BertTokenizerFast

    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *more, *WORDS, *characters, *(f"##{c}" for c in characters)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return BertTokenizerFast(vocab=vocabulary, model_max_length=POSITIONS)


def byte_tokenizer():
    """A RoBERTa tokenizer: byte-level BPE, ``<s> a </s></s> b </s>``, no token types."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizerFast

    trained = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator([" ".join(WORDS)] * 5, vocab_size=400, special_tokens=specials, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in model["merges"]]
    return RobertaTokenizerFast(vocab=model["vocab"], merges=merges, model_max_length=POSITIONS)


def unigram_tokenizer():
    """A T5 tokenizer whose vocabulary holds the whole words ``true`` and ``false``."""
    from transformers import T5TokenizerFast

    words = sorted(set(WORDS) | {"Query", "Document", "Relevant"})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((f"▁{word}", -4.0) for word in words)]
    pieces += [(character, -6.0) for character in string.ascii_letters + string.digits + string.punctuation]
    # A prompt spells most words, letter by letter.
    return T5TokenizerFast(vocab=pieces, extra_ids=0, model_max_length=2 * POSITIONS)


def _shape(tokenizer, layers: int) -> dict:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": tokenizer.pad_token_id,
        # Wide enough that random weights tell texts apart.
        "initializer_range": 0.2,
    }


@built_once
def build(
    folder: Path,
    *,
    architecture: str = "bert",
    labels: int | None = 1,
    masked: bool = False,
    layers: int = 2,
    positions: int = POSITIONS,
    seed: int = 0,
) -> Path:
    """Write a random encoder.

    Args:
        folder: Where to write.
        architecture: ``bert``, ``electra``, ``distilbert`` or ``roberta``.
        labels: Outputs of a classification head; None for a bare encoder.
        masked: Whether to write a masked language model in place of both.
        layers: Transformer layers.
        positions: Longest input in tokens.
        seed: Of the weights.

    Returns:
        The folder.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

    tokenizer = byte_tokenizer() if architecture == "roberta" else wordpiece_tokenizer()
    tokenizer.model_max_length = positions
    # RoBERTa counts positions from the one after its padding's.
    shape = {**_shape(tokenizer, layers), "max_position_embeddings": positions + 2 * (architecture == "roberta")}
    if architecture == "distilbert":
        shape = {
            **{name: shape[name] for name in ("vocab_size", "max_position_embeddings", "pad_token_id", "initializer_range")},
            **{"dim": 32, "n_layers": layers, "n_heads": 4, "hidden_dim": 64},
        }
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    if architecture == "electra":
        shape["embedding_size"] = 16
    if labels is not None:
        shape["num_labels"] = labels
    config = AutoConfig.for_model(architecture, **shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind = AutoModelForMaskedLM if masked else AutoModel if labels is None else AutoModelForSequenceClassification
        model = kind.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


@built_once
def build_pretrained(folder: Path, *, seed: int = 0) -> Path:
    """Write a random BERT with the heads of its pre-training, as PROP is published."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    tokenizer = wordpiece_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForPreTraining(BertConfig(**_shape(tokenizer, 1)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


@built_once
def build_published(folder: Path, *, name: str, seed: int = 0) -> Path:
    """Write random weights in the form in which the authors of RepBERT, ANCE, TCT-ColBERT, STAR and ADORE published theirs."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    roberta = name not in ("repbert", "tct-colbert")
    folder = build(folder, architecture="roberta" if roberta else "bert", labels=None, positions=128, seed=seed)
    encoder = AutoModel.from_pretrained(folder)
    before = "ance_encoder." if name == "ance" else ""
    state = {f"{before}{encoder.base_model_prefix}.{key}": value for key, value in encoder.state_dict().items()}
    if roberta:
        drawn = torch.Generator().manual_seed(seed)
        shapes = {"embeddingHead.weight": (24, 32), "embeddingHead.bias": (24,), "norm.weight": (24,), "norm.bias": (24,)}
        state |= {f"{before}{key}": torch.randn(shape, generator=drawn) for key, shape in shapes.items()}
    elif name == "tct-colbert":
        state["cls.predictions.bias"] = torch.zeros(encoder.config.vocab_size)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


@built_once
def build_t5(folder: Path, *, extra: bool = False, seed: int = 0) -> Path:
    """Write a random T5 with a tokenizer that knows ``true`` and ``false``, and with ``extra`` RankT5's ``<extra_id_10>``."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    tokenizer = unigram_tokenizer()
    if extra:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<extra_id_10>"]})
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        initializer_factor=1.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = T5ForConditionalGeneration(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


@built_once
def build_sentence_transformer(folder: Path, *, pooling: str = "mean", normalise: bool = False, seed: int = 0) -> Path:
    """Write a random sentence-transformers bi-encoder with ``mean`` or ``cls`` pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    folder = Path(folder)
    encoder = build(folder.with_name(f"{folder.name}-encoder"), labels=None, seed=seed)
    transformer = Transformer(str(encoder))
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
    SentenceTransformer(modules=[*modules, Normalize()] if normalise else modules, device="cpu").save(str(folder))
    return folder


@built_once
def build_multi_vector(folder: Path, *, seed: int = 0) -> Path:
    """Write a random multi-vector (ColBERT-shaped) sentence-transformers model."""
    from sentence_transformers import MultiVectorEncoder

    folder = Path(folder)
    encoder = build(folder.with_name(f"{folder.name}-encoder"), labels=None, seed=seed)
    MultiVectorEncoder(str(encoder), device="cpu").save(str(folder))
    return folder


@built_once
def build_stanford(folder: Path, *, seed: int = 0) -> Path:
    """Write a ColBERT as Stanford's code writes it: the encoder under ``bert.``, one linear layer, ``artifact.metadata``."""
    import torch
    from safetensors.torch import load_file, save_file

    build(folder, labels=None, seed=seed)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    weights = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    weights["linear.weight"] = torch.randn(16, 32, generator=torch.Generator().manual_seed(seed)) / 4
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    metadata = {"query_token_id": "the", "doc_token_id": "a", "query_maxlen": 12, "doc_maxlen": 40, "mask_punctuation": True}
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


@built_once
def build_dnn(folder: Path, *, seed: int = 0) -> Path:
    """Write a random checkpoint as ColBERT's first versions wrote it, ``colbert.dnn``, and its BERT, ``base``."""
    import torch
    from transformers import AutoConfig, AutoModel

    folder = Path(folder)
    tokenizer = wordpiece_tokenizer("[unused0]", "[unused1]")
    config = AutoConfig.for_model("bert", **_shape(tokenizer, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, linear = AutoModel.from_config(config), torch.nn.Linear(32, 16, bias=False)
    config.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    state = {**{f"bert.{name}": value for name, value in encoder.state_dict().items()}, "linear.weight": linear.weight.data}
    arguments = {"query_maxlen": 12, "doc_maxlen": 40, "mask_punctuation": True, "similarity": "l2", "dim": 16}
    whole = {"epoch": 0, "batch": 200, "model_state_dict": state, "optimizer_state_dict": {"state": {}}, "arguments": arguments}
    torch.save(whole, folder / "colbert.dnn")
    return folder


@built_once
def build_sparse(folder: Path, *, seed: int = 0) -> Path:
    """Write a random SPLADE model as sentence-transformers' ``SparseEncoder`` writes it."""
    from sentence_transformers import SparseEncoder

    folder = Path(folder)
    encoder = build(folder.with_name(f"{folder.name}-encoder"), labels=None, masked=True, seed=seed)
    SparseEncoder(str(encoder), device="cpu").save(str(folder))
    return folder


@built_once
def build_tk(folder: Path, *, seed: int = 0, **options) -> Path:
    """Write a random TK over the embeddings of a random encoder; options as for ``TK.from_embeddings``."""
    from pyterrier_debias import TK

    folder = Path(folder)
    encoder = build(folder.with_name(f"{folder.name}-encoder"), labels=None, seed=seed)
    config = {"num_attention_heads": 4, "head_dim": 8, "intermediate_size": 16}
    TK.from_embeddings(str(encoder), seed=seed, config=config, **options).save(folder)
    return folder
