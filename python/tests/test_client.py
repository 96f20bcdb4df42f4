"""The client against the real service."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lookalike.client import Client, ServiceError

CITIES = ["Amsterdam", "Berlin", "Copenhagen", "Dublin"]


@pytest.fixture(scope="module")
def model(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    lines = [f"{name}\t{name}\n{name.lower()} city\t{name}\n" for name in CITIES]
    (folder / "cities.tsv").write_text("".join(lines))
    settings = "--epochs 60 --hidden 16 --lr 0.02 --sampler full --min-documents 1 --preset plain -q"
    arguments = ["train", "cities.tsv", "--model", "model", *settings.split()]
    subprocess.run([command, *arguments], cwd=folder, check=True, capture_output=True)
    return folder / "model"


@pytest.fixture(scope="module")
def url(command, model):
    arguments = [command, "serve", model, "--listen", "127.0.0.1:0", "--token", "s3cret", "--max-items", "3"]
    service = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield service.stdout.readline().strip()
    finally:
        service.terminate()
        assert service.wait(timeout=60) == 0


@pytest.fixture
def client(url):
    with Client(url, "s3cret") as client:
        yield client


def test_predictions_are_those_of_the_command_line(client, command, model):
    texts = ["Amsterdm", "berlin city", "Kopenhagen", "Dubln", "", "x", "Berlin"]
    answers = client.predict(texts, k=2, probabilities=True)
    printed = subprocess.run(
        [command, "predict", model, "-", "--top-k", "2", "--probabilities", "--format", "jsonl"],
        input="\n".join(texts) + "\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [[found.name for found in answer] for answer in answers] == [line["labels"] for line in lines]
    for answer, line in zip(answers, lines, strict=True):
        assert [found.score for found in answer] == pytest.approx(line["scores"], rel=1e-6)


def test_wishes(client):
    [answer] = client.predict(["Berlin"], k=4, only=["Dublin", "Amsterdam"])
    assert sorted(found.name for found in answer) == ["Amsterdam", "Dublin"]
    [answer] = client.predict(["Berlin"], k=4, threshold=0.5, probabilities=True)
    assert all(found.score >= 0.5 for found in answer)
    [answer] = client.predict(["Berlin"], k=1, explain=True)
    assert answer[0].name == "Berlin"
    assert answer[0].explanation["features"]
    assert client.predict([{0: 1.0, 2: 0.5}], k=1, search="fast")[0][0].name in CITIES
    assert client.predict([]) == []


def test_other_questions(client):
    others = client.lookalikes("Berlin", k=2)
    assert len(others) == 2
    assert others[0][1] >= others[1][1]
    assert client.model()["classes"] == 4
    generation = client.reload()
    assert generation >= 1
    assert client.model()["generation"] == generation
    assert client.is_ready()


def test_refusals_have_codes(client, url):
    with pytest.raises(ServiceError) as refusal:
        client.predict([[1.0, 2.0]])
    assert (refusal.value.status, refusal.value.code) == (422, "no_vector_model")
    with pytest.raises(ServiceError, match="Atlantis"):
        client.lookalikes("Atlantis/ä?")
    with pytest.raises(ServiceError) as refusal:
        Client(url, "wrong").model()
    assert refusal.value.code == "unauthorized"
    with pytest.raises(ValueError, match="JSON compliant"):
        client.predict([{0: float("nan")}])
    with pytest.raises(TypeError, match="list of items"):
        client.predict("Berlin")
    with pytest.raises(ValueError, match="expected a URL"):
        Client("127.0.0.1:7300")


def test_threads_share_a_client(client):
    alone = client.predict(["Berln"], k=3)
    with ThreadPoolExecutor(8) as pool:
        assert all(
            answer == alone for answer in pool.map(lambda _: client.predict(["Berln"], k=3), range(64))
        )


def test_nobody_there():
    client = Client("http://127.0.0.1:9", timeout=5)
    assert not client.is_ready()
    with pytest.raises(OSError, match="."):
        client.model()


class Moody(http.server.BaseHTTPRequestHandler):
    """Busy at first; then closes connections that it promised to keep."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self):
        Moody.asked += 1
        status = 429 if Moody.asked == 1 else 200
        body = json.dumps(
            {"error": {"code": "queue_full", "message": "later"}} if status == 429 else {}
        ).encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = status == 200

    def log_message(self, *arguments):
        pass


def test_a_busy_service_and_a_closed_connection_are_asked_again():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Moody) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        client = Client(f"http://127.0.0.1:{service.server_port}")
        assert [client.model() for _ in range(3)] == [{}, {}, {}]
        assert Moody.asked == 4
        Moody.asked = 0
        with pytest.raises(ServiceError, match="queue_full"):
            Client(f"http://127.0.0.1:{service.server_port}", retries=0).model()
        service.shutdown()
