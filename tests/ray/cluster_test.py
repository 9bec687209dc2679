"""The examples for Ray on a cluster of this machine: what they make, and what becomes of it when a worker is killed."""

import concurrent.futures
import io
import os
import select
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import batch_images
import PIL.Image
import pyarrow.parquet
import pytest
import ray
import serve_images
import tessera
from ray import serve

STEPS = 4


class Mortal(batch_images.Images):
    """A worker that is killed at line 5, once: before its batch is done, as by a machine that fails."""

    def __call__(self, rows):
        if 5 in rows["line"]:
            try:
                os.close(os.open(os.environ["TESSERA_TEST_DEATH"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().__call__(rows)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(rows)


@pytest.fixture(scope="module")
def death(tmp_path_factory):
    """The file that stands when a worker has died."""
    return tmp_path_factory.mktemp("death") / "died"


@pytest.fixture(scope="module", autouse=True)
def cluster(death):
    variables = {"env_vars": {"TESSERA_TEST_DEATH": str(death)}}
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False,
             runtime_env=variables)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def pipe():
    return tessera.Pipeline.from_pretrained("shapes", threads=1)


def pixels(png):
    return PIL.Image.open(io.BytesIO(png)).tobytes()


def test_a_batch_outlives_a_worker(tmp_path, monkeypatch, death, pipe):
    monkeypatch.setattr(batch_images, "Images", Mortal)
    names = ["red circle", "blue star", "7"] * 4
    count = batch_images.make("shapes", names, tmp_path / "out", classes=True, batch=3, steps=STEPS, seed=40)
    assert death.exists() and count == len(names)
    rows = sorted(pyarrow.parquet.read_table(tmp_path / "out").to_pylist(), key=lambda row: row["line"])
    assert [(row["line"], row["text"]) for row in rows] == list(enumerate(names))
    for row in (rows[0], rows[5], rows[11]):
        alone = pipe(class_labels=row["text"], generator=40 + row["line"], num_inference_steps=STEPS).images[0]
        assert pixels(row["png"]) == alone.tobytes(), row["line"]


def test_a_batch_with_a_wrong_line_ends_in_our_words(tmp_path):
    with pytest.raises(Exception, match="did you mean 'red circle'"):
        batch_images.make("shapes", ["red circel"], tmp_path / "out", classes=True, workers=1, steps=STEPS)


@pytest.fixture
def address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for last in (False, False, True):
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            break
        except ray.exceptions.GetTimeoutError:  # Ray waits 60 s for its proxy, also where others compute
            if last:
                raise
    serve.run(serve_images.build("shapes"))
    yield f"http://127.0.0.1:{port}/?"
    serve.shutdown()


def ask(address, **query):
    """(status, body, who made it)"""
    try:
        with urllib.request.urlopen(address + urllib.parse.urlencode(query), timeout=240) as answer:
            return answer.status, answer.read(), int(answer.headers["X-Worker"])
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read(), 0


def test_requests_outlive_a_replica(address, pipe):
    status, png, _ = ask(address, **{"class": "green ring", "steps": STEPS, "seed": 9})
    assert status == 200
    assert pixels(png) == pipe(class_labels="green ring", generator=9, num_inference_steps=STEPS).images[0].tobytes()
    for wrong, says in ({"class": "red circel"}, b"did you mean"), ({"class": 1, "steps": "x"}, b"invalid literal"):
        status, body, _ = ask(address, **wrong)
        assert status == 400 and says in body

    # Both replicas are at work when one of them is killed.
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        running = [clients.submit(ask, address, **{"class": 3, "steps": 300, "seed": i}) for i in range(8)]
        victim = next(concurrent.futures.as_completed(running)).result()[2]
        os.kill(victim, signal.SIGKILL)
        made = [job.result() for job in running]
    assert [status for status, _, _ in made] == [200] * 8
    for i in (0, 7):
        alone = pipe(class_labels=3, generator=i, num_inference_steps=300).images[0]
        assert pixels(made[i][1]) == alone.tobytes()
    assert victim not in [ask(address, **{"class": 1, "steps": 1})[2] for _ in range(4)]


def test_who_leaves_stops_a_run_and_too_many_are_refused(address):
    port = int(address.rsplit(":", 1)[1].split("/")[0])
    assert ask(address, **{"class": 1, "steps": 1})[0] == 200
    clients = []
    for i in range(90):  # of minutes each; 72 have a place
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        client.sendall(b"GET /?class=1&width=1024&height=1024&steps=900&seed=%d HTTP/1.1\r\nHost: x\r\n\r\n" % i)
        clients.append(client)
    until, refused = time.monotonic() + 60, []
    while not refused and time.monotonic() < until:
        refused = select.select(clients, [], [], 1)[0]
    assert refused and b" 503 " in refused[0].recv(100)
    for client in clients:
        client.close()
    start = time.monotonic()
    while ask(address, **{"class": 1, "steps": 1})[0] == 503:
        assert time.monotonic() < start + 60
        time.sleep(0.2)
    assert time.monotonic() < start + 60
