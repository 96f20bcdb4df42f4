"""How long PECOS takes for one answer: one query after the other, on one thread, in this process.

    python pecos_answers.py prepare FOLDER        trains on FOLDER/train.txt, keeps FOLDER/pecos
    python pecos_answers.py measure FOLDER COUNT  answers the first COUNT examples of FOLDER/test.txt
"""

import json
import pathlib
import sys

import examples
import pecos_run
import report
from pecos.xmc.xlinear.model import XLinearModel


def prepare(folder: pathlib.Path) -> None:
    for part in ("train", "test"):
        sys.argv[1:] = [str(folder / f"{part}.txt"), str(folder / f"pecos-{part}")]
        examples.main()
    pecos_run.train(str(folder / "pecos-train"), str(folder / "pecos"), seed=0, threads=-1)


def measure(folder: pathlib.Path, count: int) -> dict[str, float]:
    model = XLinearModel.load(str(folder / "pecos"), is_predict_only=True)
    x, _ = examples.load(str(folder / "pecos-test"))
    queries = [x[i] for i in range(min(count, x.shape[0]))]
    return report.latencies(lambda query: model.predict(query, only_topk=5, beam_size=pecos_run.BEAM, threads=1), queries)


if __name__ == "__main__":
    verb, data, *rest = sys.argv[1:]
    if verb == "prepare":
        prepare(pathlib.Path(data))
    else:
        print(json.dumps(measure(pathlib.Path(data), int(rest[0]))))
