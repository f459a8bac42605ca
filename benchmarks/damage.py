"""What becomes of damaged files: refused by one clear error, by an obscure one, or read as something else.

    python benchmarks/damage.py [--files 1000] [--seed 0] [--kinds "vectors,model"]

Results of every kind are written; a file of one is damaged (a bit turned, cut off, a block of zeros, emptied, bytes drawn at
random), and the result is read. ``clear`` is an ``InputError``; ``same`` is what the whole files give, such as where a bias is
examined again because its file is damaged, or documentation is; ``obscure`` is any other exception; ``silent`` is anything else.
Ends with 1 where there is one of the last two.
"""

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kept_things import KINDS, asked, copied

from pyterrier_debias import InputError


def damaged(content: bytes, how: str, draw: random.Random) -> bytes:
    at = draw.randrange(len(content)) if content else 0
    if how == "bit":
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if how == "cut":
        return content[:at]
    if how == "zeros":
        return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]
    if how == "random":
        return content[:at] + draw.randbytes(min(16, len(content) - at)) + content[at + 16 :]
    return b""


def main() -> int:
    number_of_files, draw, kinds = asked(__doc__, "files", 1000, "how many damaged files", "kinds", KINDS)
    counts: Counter[tuple[str, str]] = Counter()
    worst = []
    with tempfile.TemporaryDirectory() as place:
        whole, expected = {}, {}
        for kind in kinds:
            write, read, _ = KINDS[kind]
            whole[kind] = Path(place) / "whole" / kind
            write(whole[kind])
            # The same path as that of the damaged ones.
            expected[kind] = read(copied(whole[kind], Path(place) / kind))
        for number in range(number_of_files):
            kind = kinds[number % len(kinds)]
            _, read, patterns = KINDS[kind]
            folder = copied(whole[kind], Path(place) / kind)
            files = sorted({path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()})
            path, how = draw.choice(files), draw.choice(["bit", "cut", "zeros", "random", "empty"])
            before = path.read_bytes()
            path.write_bytes(damaged(before, how, draw))
            try:
                outcome = "same" if read(folder) == expected[kind] else "silent"
                told = ""
            except InputError:
                outcome = "clear"
            except Exception as error:
                outcome, told = "obscure", f"{type(error).__name__}: {error}"
            counts[kind, outcome] += 1
            if outcome in ("silent", "obscure"):
                worst.append(f"{outcome}: {kind}, {path.relative_to(folder)}, {how}: {told[:120]}")
    outcomes = ("clear", "same", "obscure", "silent")
    print(f"{'':20}" + "".join(f"{outcome:>9}" for outcome in outcomes))
    for kind in kinds:
        print(f"{kind:20}" + "".join(f"{counts[kind, outcome]:9}" for outcome in outcomes))
    print(f"{'all':20}" + "".join(f"{sum(counts[kind, outcome] for kind in kinds):9}" for outcome in outcomes))
    print("\n".join(worst))
    return bool(worst)


if __name__ == "__main__":
    sys.exit(main())
