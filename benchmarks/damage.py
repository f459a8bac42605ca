"""What happens to damaged files: are they refused with a clear error, with an obscure one, or silently misread?

    python benchmarks/damage.py [--files 1000] [--seed 0] [--kinds "vectors,model"]

The program writes results of every kind. It damages a file of one of them (flips a bit, cuts it off, writes a block of zeros,
empties it, or draws its bytes at random), and reads the result. The outcome is ``clear`` for an ``InputError``; ``same`` if the
result is that of the undamaged files, for example because a bias is examined again, or because the file is documentation only;
``obscure`` for any other exception; and ``silent`` for anything else. The exit status is 1 if an outcome was obscure or silent.
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
    number_of_files, draw, kinds = asked(__doc__, "files", 1000, "number of damaged files", "kinds", KINDS)
    counts: Counter[tuple[str, str]] = Counter()
    worst = []
    with tempfile.TemporaryDirectory() as place:
        whole, expected = {}, {}
        for kind in kinds:
            write, read, _ = KINDS[kind]
            whole[kind] = Path(place) / "whole" / kind
            write(whole[kind])
            # The same path as that of the damaged files.
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
