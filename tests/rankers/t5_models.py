"""What tests of T5 rerankers share."""

import json
from pathlib import Path


def with_positions(folder):
    """The folder of a T5 whose configuration also names ``n_positions``, which pyterrier_t5 asks for and new checkpoints lack."""
    config = json.loads((Path(folder) / "config.json").read_text())
    if "n_positions" not in config:
        (Path(folder) / "config.json").write_text(json.dumps({**config, "n_positions": 512}))
    return str(folder)


def log_probability(module, tokenizer, prompt, answers=("true", "false")):
    """The whole model on one unpadded prompt, all rows of the vocabulary, a softmax over two of them."""
    import torch

    with torch.inference_mode():
        start = torch.full((1, 1), module.config.decoder_start_token_id)
        logits = module(**tokenizer(prompt, return_tensors="pt"), decoder_input_ids=start).logits[0, 0].double()
    chosen = logits[[tokenizer.encode(answer)[0] for answer in answers]]
    return float(torch.log(torch.exp(chosen[0]) / torch.exp(chosen).sum()))
