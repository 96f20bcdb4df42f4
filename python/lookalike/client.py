"""Asks a service that `lookalike serve` runs. Needs nothing but Python.

The whole file may be copied into a project that has no lookalike installed.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

#: An example: a text, features by id, or a value for each of the model's features.
Item = str | Mapping[int, float] | Sequence[float]

_BUSY = (429, 503)


class ServiceError(Exception):
    """The service refuses: `code` stays the same for ever, the message is for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} ({code}, status {status})")
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Prediction:
    """A class of an answer: its name, its number, and its score or probability."""

    name: str
    id: int
    score: float
    #: What carried it, if that was asked for: see docs/serving.md.
    explanation: dict[str, Any] | None = field(default=None, repr=False)


class Client:
    """Asks a service. Threads may share one; each keeps a connection of its own.

    Where the service is busy (429, 503), it is asked again up to `retries` times, after the time that
    it names; so is a connection that the service has closed meanwhile. Everything else that it refuses
    is a `ServiceError`, and a service that can't be reached an `OSError`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7300",
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 5,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"found {url!r}, expected a URL such as http://127.0.0.1:7300")
        self._secure = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout, self._retries = timeout, retries
        self._local = threading.local()
        self._limits: dict[str, Any] | None = None

    def predict(
        self,
        items: Iterable[Item],
        k: int = 5,
        *,
        probabilities: bool = False,
        threshold: float | None = None,
        only: Iterable[str] | None = None,
        search: Literal["exact", "fast"] = "exact",
        explain: bool = False,
    ) -> list[list[Prediction]]:
        """The best `k` classes of each item, best first. Any number of items: they are sent in parts."""
        if isinstance(items, (str, Mapping)):
            raise TypeError("found one item, expected a list of items")
        wish: dict[str, Any] = {"k": k, "probabilities": probabilities, "search": search, "explain": explain}
        if threshold is not None:
            wish["threshold"] = threshold
        if only is not None:
            wish["only"] = list(only)
        answers: list[list[Prediction]] = []
        for part in _parts([_as_json(item) for item in items], self._most_items(k, explain)):
            answer = self._ask("POST", "/v1/predict", {"items": part, **wish})
            for one in answer["answers"]:
                answers.append([_prediction(found) for found in one["classes"]])
        return answers

    def lookalikes(self, name: str, k: int = 10) -> list[tuple[str, float]]:
        """The classes whose vectors are most like a class's, and the cosines."""
        found = self._ask("GET", f"/v1/classes/{quote(name, safe='')}/lookalikes?k={int(k)}")
        return [(other["name"], other["cosine"]) for other in found["lookalikes"]]

    def model(self) -> dict[str, Any]:
        """What the model is, and the service's limits."""
        return self._ask("GET", "/v1/model")

    def reload(self) -> int:
        """Lets the service load its model anew; gives how many it served before. Takes a token."""
        return int(self._ask("POST", "/v1/reload")["generation"])

    def is_ready(self) -> bool:
        """Whether the service is there and answers."""
        try:
            return self._send("GET", "/readyz", None)[0] == 200
        except OSError:
            return False

    def close(self) -> None:
        """Closes this thread's connection; the next question opens another."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _most_items(self, k: int, explain: bool) -> int:
        """How many items a request may have, so that all its answers are within the limits."""
        if self._limits is None:
            self._limits = dict(self.model()["limits"])
        classes = self._limits["explained" if explain else "classes"]
        return max(1, min(int(self._limits["items"]), int(classes) // max(1, k)))

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        for attempt in range(self._retries + 1):
            status, headers, answer = self._send(method, path, content)
            if status in _BUSY and attempt < self._retries:
                time.sleep(min(float(headers.get("Retry-After") or 1), 30.0))
                continue
            break
        try:
            found = json.loads(answer)
            if status == 200:
                return dict(found)
            error = found["error"]
            raise ServiceError(status, error["code"], error["message"])
        except (ValueError, KeyError, TypeError):
            # Something between us and the service answers for it.
            raise ServiceError(status, "no_json", answer[:200].decode(errors="replace")) from None

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Sends once, and once more where the service has closed a connection that was kept."""
        for is_last in (False, True):
            connection, is_kept = self._connection()
            try:
                connection.request(method, self._path + path, body=body, headers=self._headers)
                response = connection.getresponse()
                answer = response.read()
                if response.will_close:
                    self.close()
                return response.status, response.headers, answer
            except (http.client.HTTPException, ConnectionError) as error:
                self.close()
                if is_last or not is_kept:
                    raise error if isinstance(error, OSError) else OSError(str(error)) from error
            except OSError:
                self.close()
                raise
        raise AssertionError("unreachable")

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        kept = getattr(self._local, "connection", None)
        if kept is not None:
            return kept, True
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        self._local.connection = kind(self._host, self._port, timeout=self._timeout)
        return self._local.connection, False


def _as_json(item: Item) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, Mapping):
        return {"features": [[int(id), float(value)] for id, value in item.items()]}
    return {"vector": [float(value) for value in item]}


def _prediction(found: dict[str, Any]) -> Prediction:
    return Prediction(found["name"], found["id"], found["score"], found.get("explanation"))


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
